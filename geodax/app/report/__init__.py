"""Reports as one HTML page each: layout, style sheet, figures."""
