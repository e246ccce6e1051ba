"""Reports as single HTML pages: layout, style sheet, figures."""
