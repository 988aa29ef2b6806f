//! The one place that turns user-supplied keys into ids, store keys and subjects.
