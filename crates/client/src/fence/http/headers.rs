//! A pass as headers, and back.

use fencehold_core::{BadInput, Key, Namespace, Owner, Token};
use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::fence::key_token::KeyToken;

/// The key that is held.
pub const KEY: HeaderName = HeaderName::from_static("fencing-key");
/// The token that it is held under.
pub const TOKEN: HeaderName = HeaderName::from_static("fencing-token");
/// The key's namespace. Absent: `default`.
pub const NAMESPACE: HeaderName = HeaderName::from_static("fencing-namespace");
/// Who shows it, for people.
pub const OWNER: HeaderName = HeaderName::from_static("fencing-owner");

/// Sets the fencing headers of a request, for clients that are not built of `tower` layers.
///
/// ```
/// use fencehold::fence::{KeyToken, http};
/// use fencehold::{Key, Token};
///
/// # fn main() -> Result<(), fencehold::Error> {
/// # let mut headers = Default::default();
/// http::set_headers(&KeyToken::new(Key::new("reports/täglich")?, Token::new(34)), &mut headers);
/// assert_eq!(headers["fencing-key"], "reports/t%C3%A4glich");
/// assert_eq!(headers["fencing-token"], "34");
/// # Ok(())
/// # }
/// ```
pub fn set_headers(pass: &KeyToken, headers: &mut HeaderMap) {
    headers.insert(KEY, encoded(pass.key.as_str()));
    headers.insert(TOKEN, HeaderValue::from(pass.token.get()));
    if pass.namespace == Namespace::default() {
        headers.remove(NAMESPACE);
    } else {
        headers.insert(NAMESPACE, encoded(pass.namespace.as_str()));
    }
    match &pass.owner {
        Some(owner) => headers.insert(OWNER, encoded(owner.as_str())),
        None => headers.remove(OWNER),
    };
}

/// The pass that a request shows. `None`: it shows none at all.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<KeyToken>, BadInput> {
    let (key, token) = (only(headers, &KEY)?, only(headers, &TOKEN)?);
    let (key, token) = match (key, token) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(BadInput::new("Fencing-Token", "is missing beside Fencing-Key")),
        (None, Some(_)) => return Err(BadInput::new("Fencing-Key", "is missing beside Fencing-Token")),
        (Some(key), Some(token)) => (Key::new(decoded("Fencing-Key", key)?)?, parse_token(token)?),
    };
    let mut pass = KeyToken::new(key, token);
    if let Some(namespace) = only(headers, &NAMESPACE)? {
        pass = pass.in_namespace(Namespace::new(decoded("Fencing-Namespace", namespace)?)?);
    }
    if let Some(owner) = only(headers, &OWNER)? {
        pass = pass.with_owner(Owner::new(decoded("Fencing-Owner", owner)?)?);
    }
    pass.check()?;
    Ok(Some(pass))
}

/// Two of a kind would let a reader of the first and a reader of the last believe different things.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, BadInput> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value.map(HeaderValue::as_bytes)),
        _ => Err(BadInput::new("Fencing headers", format!("contain {name} more than once"))),
    }
}

fn parse_token(text: &[u8]) -> Result<Token, BadInput> {
    let bad = || BadInput::new("Fencing-Token", "must be decimal digits, as the lease's token is");
    if text.is_empty() || text.len() > 16 || !text.iter().all(u8::is_ascii_digit) {
        return Err(bad());
    }
    let text = std::str::from_utf8(text).map_err(|_| bad())?;
    text.parse().map(Token::new).map_err(|_| bad())
}

fn encoded(text: &str) -> HeaderValue {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase();
    let mut value = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | 0..=0x20 | 0x7f.. => value.extend(['%', digit(byte >> 4), digit(byte & 15)]),
            _ => value.push(char::from(byte)),
        }
    }
    HeaderValue::try_from(value).expect("only visible ASCII is left")
}

fn decoded(field: &'static str, value: &[u8]) -> Result<String, BadInput> {
    let bad = |problem: &str| BadInput::new(field, problem.to_owned());
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (Some(high), Some(low)) = (rest.first().and_then(digit), rest.get(1).and_then(digit)) else {
            return Err(bad("has a % that no two hexadecimal digits follow"));
        };
        bytes.push(high << 4 | low);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| bad("is not UTF-8 once it is decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(headers: &[(&str, &str)]) -> Result<Option<KeyToken>, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        read(&map).map_err(|bad| bad.to_string())
    }

    #[test]
    fn a_pass_comes_back_as_it_was_shown() {
        let plain = KeyToken::new(Key::new("gpu/3").unwrap(), Token::new(7));
        let full = KeyToken::new(Key::new("100 % ключ").unwrap(), Token::new((1 << 53) - 1))
            .in_namespace(Namespace::new("team-a").unwrap())
            .with_owner(Owner::new("höst/1").unwrap());
        let mut headers = HeaderMap::new();
        for pass in [full, plain] {
            // The second takes the place of all of the first.
            set_headers(&pass, &mut headers);
            assert_eq!(read(&headers), Ok(Some(pass)));
        }
    }

    #[test]
    fn headers_that_make_no_sense_are_told_by_name() {
        let bad = |headers: &[(&str, &str)]| read_from(headers).unwrap_err();
        assert_eq!(read_from(&[]), Ok(None));
        assert_eq!(bad(&[("fencing-key", "k")]), "Fencing-Token is missing beside Fencing-Key");
        assert_eq!(bad(&[("fencing-token", "1")]), "Fencing-Key is missing beside Fencing-Token");
        for token in ["", "-1", "+1", " 1", "0x1", "1.0", "99999999999999999999", "١"] {
            let mut map = HeaderMap::new();
            map.insert(KEY, HeaderValue::from_static("k"));
            map.insert(TOKEN, HeaderValue::from_bytes(token.as_bytes()).unwrap());
            assert_eq!(read(&map).unwrap_err().field, "Fencing-Token", "{token}");
        }
        for (key, token, says) in [
            (
                "k",
                "9007199254740992",
                "token is 9007199254740992; the largest there can be is 9007199254740991",
            ),
            ("k", "0", "token is 0, the token of a key that was never held"),
            ("", "1", "key must not be empty"),
            ("a%0Ab", "1", "key has a control character at byte 1"),
            ("a%4", "1", "Fencing-Key has a % that no two hexadecimal digits follow"),
            ("%ff", "1", "Fencing-Key is not UTF-8 once it is decoded"),
        ] {
            assert_eq!(bad(&[("fencing-key", key), ("fencing-token", token)]), says);
        }
        let twice = bad(&[("fencing-key", "k"), ("fencing-token", "1"), ("fencing-token", "2")]);
        assert_eq!(twice, "Fencing headers contain fencing-token more than once");
        let named = bad(&[("fencing-key", "k"), ("fencing-token", "1"), ("fencing-namespace", "A")]);
        assert!(named.contains("namespace"), "{named}");
    }
}
