//! Lines of a file of any size, none of them kept longer than it may be.

use std::io::{self, BufRead};

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    /// As it stands, without its end.
    Text(String),
    /// Longer than it may be. What is too much was read and forgotten.
    TooLong {
        bytes: u64,
    },
    NotUtf8,
}

/// Reads the next line. The number is that of the bytes read, to show progress; `None`: there are no more.
pub(super) fn next(source: &mut impl BufRead, bytes_max: usize) -> io::Result<Option<(InputLine, u64)>> {
    let mut kept = Vec::new();
    let mut read: u64 = 0;
    let mut ended = false;
    while !ended {
        let buffer = match source.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            break;
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        ended = end.is_some();
        let used = end.map_or(buffer.len(), |end| end + 1);
        // One byte more than allowed tells that it is too long.
        let room = (bytes_max + 1).saturating_sub(kept.len());
        let text = &buffer[..end.unwrap_or(used)];
        kept.extend_from_slice(&text[..text.len().min(room)]);
        read += used as u64;
        source.consume(used);
    }
    if read == 0 {
        return Ok(None);
    }
    if kept.len() > bytes_max {
        return Ok(Some((InputLine::TooLong { bytes: read - u64::from(ended) }, read)));
    }
    Ok(Some((String::from_utf8(kept).map_or(InputLine::NotUtf8, InputLine::Text), read)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_one_by_one_and_a_long_one_costs_no_other() {
        let text = b"one\n\ntoo long for this\ntwo\r\n\xff\nlast";
        let mut source = io::BufReader::with_capacity(3, &text[..]);
        let mut lines = Vec::new();
        let mut read = 0;
        while let Some((line, bytes)) = next(&mut source, 5).unwrap() {
            lines.push(line);
            read += bytes;
        }
        let line = |text: &str| InputLine::Text(text.to_owned());
        let expected = [
            line("one"),
            line(""),
            InputLine::TooLong { bytes: 17 },
            line("two\r"),
            InputLine::NotUtf8,
            line("last"),
        ];
        assert_eq!(lines, expected);
        assert_eq!(read, text.len() as u64);
    }
}
