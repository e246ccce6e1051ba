"""Tables of users, read with pandas into named numeric columns."""
