//! heyday
