"""Long runs: the model, the simulation, and a broker under load whose memory is measured."""
