"""The sources of facts, each module read only by the process that needs it. See onecat.probe.agent.core."""
