"""Long runs: the model for hours, and a broker under load with an eye on its memory."""
