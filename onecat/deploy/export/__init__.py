"""Export: a planned deployment as files for tools that run it without onecat.

In: a `Request` (deployment, profile, plan and what the host's facts would have told). Out: `ExportedFile`s of one form
(nginx, systemd, compose, quadlet, kubernetes), which `write_files` puts into a directory. No host is touched.
"""

from onecat.deploy.export.records import ExportedFile, Form, Options, Request
from onecat.deploy.export.registry import find_form, forms
from onecat.deploy.export.writing import document, write_files

__all__ = ["ExportedFile", "Form", "Options", "Request", "document", "find_form", "forms", "write_files"]
