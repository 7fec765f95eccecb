"""What runs in the user's own interpreter. Standard library only at import."""
