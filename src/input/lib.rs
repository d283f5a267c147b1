//! Training data from files to pixels. Needs neither libtorch nor MPI: the launcher packs files with it, a rank reads them.
