//! Figures of a folder.

use crate::read::load::folder::Shortage;
use crate::read::load::problem::Problem;

/// Figures of one folder: groups of training, or tables of scoring.
#[derive(Debug, PartialEq)]
pub struct Extraction<T> {
    /// Last component of the folder's path, and first part of the names of all files that are written.
    pub name: String,
    /// Command that resumes the sweep, from its manifest.
    pub resume_command: Option<String>,
    /// Groups of equal conditions, ordered by model, precision and batch size for training; by device and profile for
    /// scoring.
    pub groups: Vec<T>,
    /// Batch sizes that did not fit into memory.
    pub shortages: Vec<Shortage>,
    /// Runs that are excluded, with the reason.
    pub problems: Vec<Problem>,
}
