#!/bin/sh
# collector.sh: what a host without Python >= 3.6 can tell, as text of sections for onecat.probe.importers.
