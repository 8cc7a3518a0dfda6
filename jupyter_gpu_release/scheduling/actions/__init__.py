"""Actions of a pass: each changes the working state and says what it decided."""
