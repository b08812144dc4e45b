//! From the rows of calls to everything that has to know each of them.

/// What a method returns, as an answer carries it: large answers travel in a box.
pub(crate) trait Packed<T> {
    fn pack(plain: T) -> Self;
    fn unpack(self) -> T;
}

impl<T> Packed<T> for T {
    fn pack(plain: T) -> Self {
        plain
    }

    fn unpack(self) -> T {
        self
    }
}

impl<T> Packed<T> for Box<T> {
    fn pack(plain: T) -> Self {
        Box::new(plain)
    }

    fn unpack(self) -> T {
        *self
    }
}

impl<T> Packed<Option<T>> for Option<Box<T>> {
    fn pack(plain: Option<T>) -> Self {
        plain.map(Box::new)
    }

    fn unpack(self) -> Option<T> {
        self.map(|boxed| *boxed)
    }
}

/// What is known of a call beside its types: in its row, after what it is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Carrying it out twice, or not knowing whether it was carried out, makes no difference.
    Reads,
    /// It neither needs the jobs, nor counts them, nor tells what becomes of them.
    LeasesAlone,
    /// It may leave something behind in its namespace, for which that must exist.
    Creates,
    /// It must not be sent again once it may have been carried out.
    Once,
}

/// The type that a method has where the call has another.
macro_rules! plain {
    ($packed:ty) => {
        $packed
    };
    ($($packed:ty)?, $plain:ty) => {
        $plain
    };
}

/// Each row: a method of the trait, the call that it is, and what that is answered with. `as`: what the method takes or returns,
/// where the call has it in a box. An answer that several calls have is written with its type once. Last comes what is known of the call
/// ([`Mark`]). Before the rows stand the methods that
/// are no call, how every store has them, and the calls and answers that have no method of their own.
macro_rules! calls {
    (
        $(#[$store_meta:meta])* trait $Store:ident { $($methods:tt)* }
        impl { $($implemented:tt)* }
        $(#[$ask_meta:meta])* enum $StoreRequest:ident { $($ask_others:tt)* }
        $(#[$answer_meta:meta])* enum $StoreResponse:ident { $($answer_others:tt)* }
        calls {$(
            $(#[$meta:meta])*
            $method:ident: $call:ident $(($arg:ident: $arg_type:ty $(as $arg_plain:ty)?))? $({ $($field:ident: $field_type:ty),+ })?
                -> $answer:ident $(($answer_type:ty))? $(as $plain:ty)? $([$($mark:ident),+])?;
        )*}
    ) => {
        $(#[$store_meta])*
        #[async_trait::async_trait]
        pub trait $Store: $crate::operation::sealed::Sealed + Send + Sync + std::fmt::Debug {
            $(
                $(#[$meta])*
                fn $method<'a>(
                    &'a self,
                    call: &'a CallContext,
                    $($arg: plain!($arg_type $(, $arg_plain)?),)?
                    $($($field: $field_type),+)?
                ) -> $crate::operation::StoreFuture<'a, plain!($($answer_type)? $(, $plain)?)>;
            )*
            $($methods)*
        }

        $(#[$ask_meta])*
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub enum $StoreRequest {
            $($(#[$meta])* $call $(($arg_type))? $({
                $(#[allow(missing_docs, reason = "as the method has it")] $field: $field_type),+
            })?,)*
            $($ask_others)*
        }

        $(#[$answer_meta])*
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "each is what a method of the trait returns")]
        pub enum $StoreResponse {
            $($($answer($answer_type),)?)*
            $($answer_others)*
        }

        #[async_trait::async_trait]
        impl<R: $crate::operation::StoreBackend + std::fmt::Debug> $Store for R {
            $(
                fn $method<'a>(
                    &'a self,
                    call: &'a CallContext,
                    $($arg: plain!($arg_type $(, $arg_plain)?),)?
                    $($($field: $field_type),+)?
                ) -> $crate::operation::StoreFuture<'a, plain!($($answer_type)? $(, $plain)?)> {
                    use $crate::operation::{Packed, ask};
                    let request = $StoreRequest::$call $((Packed::pack($arg)))? $({ $($field),+ })?;
                    ask(self, call, request.into(), |answer| match $StoreResponse::try_from(answer) {
                        Ok($StoreResponse::$answer(answer)) => Some(Packed::unpack(answer)),
                        _ => None,
                    })
                }
            )*
            $($implemented)*
        }

        impl $StoreRequest {
            /// Whether this is known of it.
            pub(crate) fn is(&self, mark: $crate::operation::Mark) -> bool {
                let marks: &[$crate::operation::Mark] = match self {
                    $($StoreRequest::$call { .. } => &[$($($crate::operation::Mark::$mark),+)?],)*
                    #[allow(unreachable_patterns, reason = "where every call has a method")]
                    _ => &[],
                };
                marks.contains(&mark)
            }

            /// Has a store carry it out. `Err` of the call: it is none that has a method.
            pub(crate) async fn perform(self, store: &dyn $Store, call: &CallContext) -> Result<Result<$StoreResponse, Self>, StoreError> {
                use $crate::operation::Packed;
                Ok(Ok(match self {
                    $($StoreRequest::$call $(($arg))? $({ $($field),+ })? => {
                        let plain = store.$method(call, $(Packed::unpack($arg),)? $($($field),+)?).await?;
                        $StoreResponse::$answer(Packed::pack(plain))
                    })*
                    #[allow(unreachable_patterns, reason = "where every call has a method")]
                    other => return Ok(Err(other)),
                }))
            }
        }
    };
}

pub(crate) use {calls, plain};
