"""onecat: environment doctor and deployment orchestrator for serving LLMs with vLLM."""

__version__ = "0.1.0"
