"""What the machine is, what it has left, and how fast it is."""
