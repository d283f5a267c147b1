//! Turns what was written into figures. Needs no libtorch, no MPI and no GPU. Not for starting anything.
