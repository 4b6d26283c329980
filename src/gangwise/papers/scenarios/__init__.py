"""Built-in scenarios and scenario files."""
