"""The cases, by what they ask."""
