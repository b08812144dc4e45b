//! Nothing. Built together with this package, every dependency has the same features whatever the library is built with, so
//! `cargo xtask test features` builds each of them once.
