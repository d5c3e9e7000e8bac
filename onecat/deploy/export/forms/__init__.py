"""One module per form, found by its `FORM`: a new form is a new file here."""
