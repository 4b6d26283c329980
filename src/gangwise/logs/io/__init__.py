"""From files of text to typed tables, with an account of every row."""
