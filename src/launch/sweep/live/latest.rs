//! What a command said last of where it is, for those who pass it on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ringmark_core::dimension::Seconds;
use ringmark_core::progress::Progress;

/// What was said last; the same for all who have a clone.
#[derive(Debug, Clone, Default)]
pub struct Latest(Arc<Mutex<Option<Progress>>>);

impl Latest {
    /// Nothing before anything was said.
    pub fn get(&self) -> Option<Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on it is this.
    pub fn set(&self, progress: Progress) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }
}

/// Since 1970.
pub fn now() -> Seconds {
    Seconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
}
