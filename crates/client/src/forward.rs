//! Methods that many types have alike: those that only pass the call on to the `inner` value of a type, one row each with its
//! documentation, and the steps of a builder.

/// Steps of a builder: each returns it.
macro_rules! builder_steps {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            $(#[$doc])*
            pub fn $name(mut self, $($argument: $type),*) -> Self {
                self.inner = self.inner.$name($($argument),*);
                self
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

/// How the steps of a builder change what it has gathered. The first bad input takes its place.
macro_rules! gathered {
    ($field:ident: $type:ty) => {
        fn set(self, change: impl FnOnce(&mut $type)) -> Self {
            self.try_set(|gathered| {
                change(gathered);
                Ok(())
            })
        }

        fn try_set(mut self, change: impl FnOnce(&mut $type) -> Result<(), BadInput>) -> Self {
            self.$field = self.$field.and_then(|mut gathered| change(&mut gathered).map(|()| gathered));
            self
        }
    };
}
