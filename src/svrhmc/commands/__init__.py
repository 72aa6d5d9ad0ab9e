"""Commands of the shell that have a file of their own."""
