//! Decides what to run where, starts it through mpirun, watches it, keeps what it wrote. Not for figures: those are read from the files.
