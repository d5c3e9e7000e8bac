"""Fix: writes what would put a host right as a shell script for a person to review and run.

In: a host's report, its facts, the profile. Out: the text of one script (`fix_script`). A step of it is a row in
steps.py and a template in templates/fix/steps/; what differs between families of distributions is a file in
templates/fix/families/.
"""

from onecat.doctor.fix.script import fix_script

__all__ = ["fix_script"]
