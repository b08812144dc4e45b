//! JSON in one form: without white space, the members of objects by name, strings escaped in one way. Two payloads that say the
//! same are the same request, however they were written. Numbers are compared as they are written.

use fencehold_contract::operation::is_too_deep;

/// Whether two texts are the same JSON.
pub(super) fn same_json(one: &str, other: &str) -> bool {
    one == other || canonical(one) == canonical(other)
}

/// JSON in its one form. What is not JSON, or is nested too deeply to be read, stays as it is.
pub(crate) fn canonical(json: &str) -> String {
    let mut reader = Reader { rest: json };
    let read = if is_too_deep(json) { None } else { reader.value() };
    read.filter(|_| reader.rest.trim_ascii().is_empty())
        .unwrap_or_else(|| json.to_owned())
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn value(&mut self) -> Option<String> {
        self.rest = self.rest.trim_ascii_start();
        match self.rest.as_bytes().first()? {
            b'{' => {
                let mut members = self.list('}', |reader| {
                    let name = reader.string()?;
                    reader.takes(':').then_some(())?;
                    Some((name, reader.value()?))
                })?;
                // Stable: of a name that is there twice, the order counts.
                members.sort_by(|(one, _), (other, _)| one.cmp(other));
                let members: Vec<String> =
                    members.into_iter().map(|(name, value)| format!("{name}:{value}")).collect();
                Some(format!("{{{}}}", members.join(",")))
            }
            b'[' => Some(format!("[{}]", self.list(']', Reader::value)?.join(","))),
            b'"' => self.string(),
            _ => {
                let ends = |letter: char| letter.is_ascii_whitespace() || ",]}".contains(letter);
                let end = self.rest.find(ends).unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at(end);
                self.rest = rest;
                (!word.is_empty()).then(|| word.to_owned())
            }
        }
    }

    fn list<T>(&mut self, close: char, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut items = Vec::new();
        self.rest = self.rest.get(1..)?;
        if self.takes(close) {
            return Some(items);
        }
        loop {
            items.push(item(self)?);
            if self.takes(close) {
                return Some(items);
            }
            self.takes(',').then_some(())?;
        }
    }

    fn string(&mut self) -> Option<String> {
        self.rest = self.rest.trim_ascii_start();
        let mut escaped = false;
        let inside = self.rest.strip_prefix('"')?;
        let end = inside.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        })?;
        let (string, rest) = self.rest.split_at(end + 2);
        self.rest = rest;
        // Half of a pair of escapes is no text: it stays as it is.
        let text = serde_json::from_str::<String>(string).ok();
        Some(
            text.and_then(|text| serde_json::to_string(&text).ok())
                .unwrap_or_else(|| string.to_owned()),
        )
    }

    fn takes(&mut self, mark: char) -> bool {
        self.rest = self.rest.trim_ascii_start();
        let rest = self.rest.strip_prefix(mark);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_the_same_is_the_same() {
        for (one, other) in [
            ("{\"to\": \"bob\"}", "{\"to\":\"bob\"}"),
            (
                "{\"a\":1,\"b\":[1,{\"c\":null,\"d\":\"x\"}]}",
                " {\"b\":[1, {\"d\":\"x\",\"c\":null}],\n\"a\":1} ",
            ),
            ("\"\\u0041\\/\"", "\"A/\""),
            ("{\"\\u0061\":1,\"b\":2}", "{\"b\":2,\"a\":1}"),
            ("[ ]", "[]"),
            ("{ }", "{}"),
            (" true ", "true"),
        ] {
            assert!(same_json(one, other), "{one} and {other}: {} and {}", canonical(one), canonical(other));
        }
        for (one, other) in [
            ("[1,2]", "[2,1]"),
            ("{\"a\":1}", "{\"a\":\"1\"}"),
            ("\"a b\"", "\"ab\""),
            ("\"{\\\"a\\\":1}\"", "{\"a\":1}"),
            ("{\"a\":1,\"a\":2}", "{\"a\":2,\"a\":1}"),
            ("\"\\ud800\"", "\"\\ud801\""),
            ("9007199254740993", "9007199254740992"),
            ("null", "[]"),
        ] {
            assert!(!same_json(one, other), "{one} and {other}");
        }
    }

    #[test]
    fn what_is_not_json_stays_as_it_is() {
        for text in ["", "{", "[1", "{\"a\"", "{\"a\":}", "\"", "\"\\", "1 2", "[1,]é", "}", "{\"é\":1"] {
            assert_eq!(canonical(text), text);
        }
        let deep = "[".repeat(50_000) + &"]".repeat(50_000);
        assert_eq!(canonical(&deep), deep);
    }
}
