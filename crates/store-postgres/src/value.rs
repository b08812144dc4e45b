//! Values as the database has them: 128 bits as a `uuid`, JSON as a `jsonb`, numbers, moments, and bytes as hexadecimal digits.

use fencehold_core::job::JobId;
use fencehold_core::{HoldHash, Timestamp};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// 128 bits, as a `uuid` of the database: a job's id, a hash, a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Uuid128(pub(super) [u8; 16]);

impl From<JobId> for Uuid128 {
    fn from(id: JobId) -> Self {
        Uuid128(*id.as_bytes())
    }
}

impl From<HoldHash> for Uuid128 {
    fn from(hash: HoldHash) -> Self {
        Uuid128(*hash.as_bytes())
    }
}

impl From<Uuid128> for JobId {
    fn from(Uuid128(bytes): Uuid128) -> Self {
        JobId::from_bytes(bytes)
    }
}

impl Uuid128 {
    /// As the database writes it.
    pub(super) fn text(self) -> String {
        JobId::from(self).to_string()
    }
}

impl<'a> FromSql<'a> for Uuid128 {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Uuid128(raw.try_into()?))
    }

    accepts!(UUID);
}

impl ToSql for Uuid128 {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

/// JSON as text, as a `jsonb` of the database.
#[derive(Clone, Debug)]
pub(super) struct Json(pub(super) String);

impl<'a> FromSql<'a> for Json {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        match raw.split_first() {
            Some((1, text)) => Ok(Json(std::str::from_utf8(text)?.to_owned())),
            _ => Err("jsonb of an unknown version".into()),
        }
    }

    accepts!(JSONB);
}

impl ToSql for Json {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&[1]);
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    accepts!(JSONB);
    to_sql_checked!();
}

/// A number as the database takes it. What is larger is as good as endless.
pub(super) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number of the database that is never negative.
pub(super) fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// How many rows, as the database takes it.
pub(super) fn limit_to_sql(limit: usize) -> i32 {
    i32::try_from(limit).unwrap_or(i32::MAX)
}

/// Store time here is wall time.
pub(super) fn stamp(ms: u64) -> Timestamp {
    Timestamp { store_ms: ms, wall_ms: ms }
}

pub(super) fn bytes_of(hex: &str) -> Vec<u8> {
    let byte = |at: usize| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..hex.len() / 2).map(|nth| byte(2 * nth).unwrap_or(0)).collect()
}

pub(super) fn hex_of(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
