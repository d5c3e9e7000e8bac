"""Render: puts results into the form that people or other programs read.

In: records such as doctor's `Report`. Out: text, or a JSON-ready document. One module per form (text, json, markdown,
junit), and for what is shown otherwise: fleet, watch, report. What strangers see goes through redaction first.
"""
