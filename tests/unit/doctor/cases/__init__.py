"""What checks say: one module for each area, each with a list CASES. A new area is a new module here."""
