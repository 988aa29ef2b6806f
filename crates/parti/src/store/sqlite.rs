//! The store on one file.
