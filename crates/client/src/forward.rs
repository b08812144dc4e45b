//! Methods of a type that only pass the call on to the `inner` value that it wraps: one row each, with its documentation.

/// Steps of a builder: each gives the builder on.
macro_rules! builder_steps {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            $(#[$doc])*
            pub fn $name(self, $($argument: $type),*) -> Self {
                Self { inner: self.inner.$name($($argument),*) }
            }
        )*
    };
}

/// What the inner value can say at once.
macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(&self, $($argument: $type),*) -> $output {
                self.inner.$name($($argument),*)
            }
        )*
    };
}

/// What the inner value does asynchronously: the calling thread waits for it.
macro_rules! blocking_calls {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(&self, $($argument: $type),*) -> $output {
                block_on(self.inner.$name($($argument),*))
            }
        )*
    };
}
