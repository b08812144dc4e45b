//! Rust source cut into names, comments, texts and the rest: as much as checks of words and names need. Rust's own rules for
//! comments, raw strings and lifetimes are followed, so nothing inside a text is taken for code.

/// A part of a source, beside the line that it begins in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// A keyword, a name or a number.
    Name(&'a str),
    /// One comment, with its slashes.
    Comment(&'a str),
    /// What stands between the quotes of a string, escapes as they are written.
    Text(&'a str),
    /// Any other character.
    Mark(char),
}

pub(crate) fn pieces(source: &str) -> Vec<(usize, Piece<'_>)> {
    let mut pieces = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while let Some(c) = rest.chars().next() {
        let (piece, length) = match c {
            '/' if rest.starts_with("//") => {
                let length = rest.find('\n').unwrap_or(rest.len());
                (Some(Piece::Comment(&rest[..length])), length)
            }
            '/' if rest.starts_with("/*") => {
                let length = block_comment(rest);
                (Some(Piece::Comment(&rest[..length])), length)
            }
            '"' => text(rest, 1),
            '\'' => (None, quoted_char(rest)),
            c if is_of_name(c) => {
                let length = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
                let after = &rest[length..];
                let hashes = after.len() - after.trim_start_matches('#').len();
                match &rest[..length] {
                    "b" | "c" if after.starts_with('"') => text(rest, 2),
                    "b" if after.starts_with('\'') => (None, 1 + quoted_char(after)),
                    "r" | "br" | "cr" if after[hashes..].starts_with('"') => {
                        raw_text(rest, length + hashes + 1, hashes)
                    }
                    // A raw name: `r#type`.
                    "r" if hashes == 1 => (None, 2),
                    name => (Some(Piece::Name(name)), length),
                }
            }
            c if c.is_whitespace() => (None, c.len_utf8()),
            c => (Some(Piece::Mark(c)), c.len_utf8()),
        };
        pieces.extend(piece.map(|piece| (line, piece)));
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    pieces
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    loop {
        let Some(next) = rest[at..].find(['/', '*']) else { return rest.len() };
        at += next;
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
}

/// A text whose first character is at `start`.
fn text(rest: &str, start: usize) -> (Option<Piece<'_>>, usize) {
    let mut at = start;
    while let Some(next) = rest[at..].find(['"', '\\']) {
        at += next;
        if rest[at..].starts_with('"') {
            return (Some(Piece::Text(&rest[start..at])), at + 1);
        }
        at += 1 + rest[at + 1..].chars().next().map_or(0, char::len_utf8);
    }
    (Some(Piece::Text(&rest[start..])), rest.len())
}

fn raw_text(rest: &str, start: usize, hashes: usize) -> (Option<Piece<'_>>, usize) {
    let end = format!("\"{}", "#".repeat(hashes));
    let length = rest[start..].find(&end).unwrap_or(rest.len() - start);
    (Some(Piece::Text(&rest[start..start + length])), (start + length + end.len()).min(rest.len()))
}

/// How long a character in quotes is; of a lifetime, the quote alone.
fn quoted_char(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, c))) => {
            let after = at + c.len_utf8();
            rest[after..].find('\'').map_or(1, |end| after + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_texts_and_names_are_told_apart() {
        let source = "/* a /* b */ \"c */ fn f<'a>(x: &'a str) { // it's \"so\"\n g('\"', b'\\'', \"d \\\" e\", r#\"f \" g\"#); r#type }";
        let found = pieces(source);
        let of = |wanted: fn(&Piece<'_>) -> Option<String>| -> Vec<(usize, String)> {
            found.iter().filter_map(|(line, piece)| Some((*line, wanted(piece)?))).collect()
        };
        let comments =
            of(|piece| if let Piece::Comment(text) = piece { Some((*text).to_owned()) } else { None });
        assert_eq!(comments, [(1, "/* a /* b */ \"c */".to_owned()), (1, "// it's \"so\"".to_owned())]);
        let texts = of(|piece| if let Piece::Text(text) = piece { Some((*text).to_owned()) } else { None });
        assert_eq!(texts, [(2, "d \\\" e".to_owned()), (2, "f \" g".to_owned())]);
        let names = of(|piece| if let Piece::Name(name) = piece { Some((*name).to_owned()) } else { None });
        let names: Vec<&str> = names.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["fn", "f", "a", "x", "a", "str", "g", "type"]);
    }

    #[test]
    fn a_source_that_ends_early_is_read_to_its_end() {
        for source in ["\"a", "r#\"a", "/* a", "'", "'\\", "\"\\", "b'", "r#"] {
            pieces(source);
        }
    }
}
