//! Latest progress of a command, shared with its displays.

use std::sync::{Arc, Mutex, PoisonError};

use ringmark_core::progress::Progress;

/// Latest progress of a command. Clones share the same value.
#[derive(Debug, Clone, Default)]
pub struct Latest(Arc<Mutex<Option<Progress>>>);

impl Latest {
    /// Returns the latest progress; `None` before the first.
    pub fn get(&self) -> Option<Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the latest progress.
    pub fn set(&self, progress: Progress) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }
}
