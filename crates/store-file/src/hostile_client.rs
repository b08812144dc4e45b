//! Speaking to an owner's socket without the checks that opening a directory makes, as a hostile process would: for tests
//! of who may ask what. Never part of a shipped build.
//!
//! What can be asked is read out of the types themselves, so a new question is knocked with as soon as there is one.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_contract::operation::{JobRequest, StoreRequest};
use fencehold_core::Namespace;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer as _,
    SeqAccess, VariantAccess, Visitor,
};

use serde::de::value::{Error as NoValue, MapDeserializer};

use super::frame::{FromOwner, PROTOCOL, ToOwner, bytes_of};
use super::schema::SCHEMA_VERSION;

const LIMIT: Duration = Duration::from_secs(20);

/// What became of a knock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KnockResult {
    /// The owner took the question and answered it.
    Answered,
    /// The owner refused to speak with this process, or to answer it.
    Refused,
    /// The socket could not be reached.
    Unreachable,
}

/// The name of everything that can be asked through the socket.
pub fn questions() -> Vec<String> {
    every_question().into_iter().map(|(name, _)| name).collect()
}

/// Asks each question through this socket, on a connection of its own.
pub fn probe_socket(socket: &Path) -> io::Result<Vec<(String, KnockResult)>> {
    let ask = |(name, picks): (String, Vec<u32>)| {
        let ask =
            least::<StoreRequest>(&picks).map_err(|error| io::Error::other(format!("{name}: {error}")))?;
        Ok((name, knock_with(socket, ask)?))
    };
    every_question().into_iter().map(ask).collect()
}

/// Each question, with the variants that are picked to make one.
fn every_question() -> Vec<(String, Vec<u32>)> {
    let mut questions = Vec::new();
    for (name, at) in variants::<StoreRequest>().iter().zip(0..) {
        if *name == "Job" {
            let jobs = variants::<JobRequest>().iter().zip(0..);
            questions.extend(jobs.map(|(job, nth)| (format!("Job::{job}"), vec![at, nth])));
        } else {
            questions.push(((*name).to_owned(), vec![at]));
        }
    }
    questions
}

fn knock_with(socket: &Path, ask: StoreRequest) -> io::Result<KnockResult> {
    let Ok(mut stream) = UnixStream::connect(socket) else { return Ok(KnockResult::Unreachable) };
    stream.set_read_timeout(Some(LIMIT))?;
    let hello = ToOwner::Hello { protocol: PROTOCOL, schema: SCHEMA_VERSION, pid: std::process::id() };
    let ask = ToOwner::Ask { id: 1, namespace: Namespace::default(), ask: Box::new(ask), timeout_ms: 1_000 };
    for frame in [hello, ask] {
        // An owner that does not speak with us may have closed the connection already.
        if stream.write_all(&bytes_of(&frame)?).is_err() {
            return Ok(KnockResult::Refused);
        }
    }
    loop {
        match next(&mut stream) {
            Ok(FromOwner::Answer { result, .. }) => {
                let denied = matches!(*result, Err(StoreError::Forbidden { .. }));
                return Ok(if denied { KnockResult::Refused } else { KnockResult::Answered });
            }
            Ok(
                FromOwner::Welcome { .. }
                | FromOwner::Starting
                | FromOwner::Pong
                | FromOwner::HoldChanged { .. },
            ) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(error);
            }
            Ok(FromOwner::Refuse { .. }) | Err(_) => return Ok(KnockResult::Refused),
        }
    }
}

fn next(stream: &mut UnixStream) -> io::Result<FromOwner> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut body)?;
    postcard::from_bytes(&body).map_err(io::Error::other)
}

/// The names of an enum's variants.
pub(super) fn variants<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut least = SmallestValue { picks: VecDeque::new(), variants: None };
    let _ = T::deserialize(&mut least);
    least.variants.unwrap_or_default()
}

/// The least value of a type: of its enums these variants in turn, then the first ones.
pub(super) fn least<T: DeserializeOwned>(picks: &[u32]) -> Result<T, NoValue> {
    T::deserialize(&mut SmallestValue { picks: picks.iter().copied().collect(), variants: None })
}

/// What is given to a visitor.
type Given<'de, V> = Result<<V as Visitor<'de>>::Value, NoValue>;
type Name = &'static str;

/// A source of values that has 1 for every number, `a` for every text, and one element for every list.
struct SmallestValue {
    picks: VecDeque<u32>,
    /// The variants of the first enum that was met.
    variants: Option<&'static [&'static str]>,
}

macro_rules! gives {
    ($($method:ident $visit:ident $($value:expr)?;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Given<'de, V> {
            visitor.$visit($($value)?)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut SmallestValue {
    type Error = NoValue;

    gives! {
        deserialize_bool visit_bool false;
        deserialize_i8 visit_i8 1;
        deserialize_i16 visit_i16 1;
        deserialize_i32 visit_i32 1;
        deserialize_i64 visit_i64 1;
        deserialize_u8 visit_u8 1;
        deserialize_u16 visit_u16 1;
        deserialize_u32 visit_u32 1;
        deserialize_u64 visit_u64 1;
        deserialize_u128 visit_u128 1;
        deserialize_f32 visit_f32 1.0;
        deserialize_f64 visit_f64 1.0;
        deserialize_char visit_char 'a';
        deserialize_str visit_str "a";
        deserialize_string visit_str "a";
        deserialize_bytes visit_bytes &[1; 16];
        deserialize_byte_buf visit_bytes &[1; 16];
        deserialize_option visit_none;
        deserialize_unit visit_unit;
        deserialize_ignored_any visit_unit;
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Given<'de, V> {
        Err(NoValue::custom("a type that does not say what it is"))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Given<'de, V> {
        Err(NoValue::custom("a name where there is none"))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: Name, visitor: V) -> Given<'de, V> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: Name, visitor: V) -> Given<'de, V> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Given<'de, V> {
        visitor.visit_seq(Elements { least: self, left: 1 })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, left: usize, visitor: V) -> Given<'de, V> {
        visitor.visit_seq(Elements { least: self, left })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(self, _: Name, left: usize, visitor: V) -> Given<'de, V> {
        visitor.visit_seq(Elements { least: self, left })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Given<'de, V> {
        visitor.visit_map(MapDeserializer::new(std::iter::empty::<((), ())>()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: Name,
        fields: &'static [Name],
        visitor: V,
    ) -> Given<'de, V> {
        visitor.visit_seq(Elements { least: self, left: fields.len() })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: Name,
        variants: &'static [Name],
        visitor: V,
    ) -> Given<'de, V> {
        self.variants.get_or_insert(variants);
        visitor.visit_enum(self)
    }
}

struct Elements<'a> {
    least: &'a mut SmallestValue,
    left: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = NoValue;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, NoValue> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.least).map(Some)
    }
}

impl<'de> EnumAccess<'de> for &mut SmallestValue {
    type Error = NoValue;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), NoValue> {
        let nth = self.picks.pop_front().unwrap_or(0);
        Ok((seed.deserialize(nth.into_deserializer())?, self))
    }
}

impl<'de> VariantAccess<'de> for &mut SmallestValue {
    type Error = NoValue;

    fn unit_variant(self) -> Result<(), NoValue> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, NoValue> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, left: usize, visitor: V) -> Given<'de, V> {
        visitor.visit_seq(Elements { least: self, left })
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [Name], visitor: V) -> Given<'de, V> {
        visitor.visit_seq(Elements { least: self, left: fields.len() })
    }
}
