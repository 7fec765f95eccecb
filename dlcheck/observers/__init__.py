"""What rides on the one drive of the user's loader and describes what it sees."""
