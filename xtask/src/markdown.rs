//! The little of Markdown that a check of links needs: links, and what a link can point to inside a page.
//!
//! Line by line. Code, fenced or inline, has neither links nor headings.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) line: usize,
    pub(crate) target: String,
}

/// Inline links and images, reference definitions, and the `href` and `src` of HTML tags.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (line, prose) in prose(text) {
        let prose = without_code_spans(prose);
        let mut targets: Vec<&str> = prose.split("](").skip(1).filter_map(inline_target).collect();
        targets.extend(reference_target(&prose));
        targets.extend(attribute(&prose, "href"));
        targets.extend(attribute(&prose, "src"));
        let link = |target: &str| Link { line, target: target.to_owned() };
        links.extend(targets.into_iter().filter(|target| !target.is_empty()).map(link));
    }
    links
}

/// What `#...` can name in this page: headings, in the form that code hosts give them, and the ids of HTML tags.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, prose) in prose(text) {
        if let Some(heading) = heading(prose) {
            let slug = slug(heading);
            let numbered = (1..).map(|n| format!("{slug}-{n}"));
            let free = std::iter::once(slug.clone())
                .chain(numbered)
                .find(|name| !anchors.contains(name));
            anchors.extend(free);
        }
        anchors.extend(attribute(prose, "id").chain(attribute(prose, "name")).map(str::to_owned));
    }
    anchors
}

/// `target`, seen from `file`, as a path from the root; nothing if it leads out of it.
pub(crate) fn inside(file: &Path, target: &str) -> Option<PathBuf> {
    let mut path = file.parent().unwrap_or(Path::new("")).to_path_buf();
    for component in Path::new(target).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => path.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// The lines outside fenced code, with their numbers from 1.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut open_fence: Option<&str> = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = fence(line);
        match (open_fence, fence) {
            // A fence is closed by one of its own kind that is at least as long, with nothing after it.
            (Some(open), Some(close)) if close.starts_with(open) && line.trim() == close => open_fence = None,
            (Some(_), _) => {}
            (None, Some(_)) => open_fence = fence,
            (None, None) => return Some((index + 1, line)),
        }
        None
    })
}

/// The backticks or tildes that a line of a fence starts with.
fn fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let length = line.len() - line.trim_start_matches(mark).len();
    // Three backticks with more of them later in the line are an inline code span.
    let inline = mark == '`' && line[length..].contains('`');
    (length >= 3 && !inline).then(|| &line[..length])
}

/// Drops what stands between runs of backticks of equal length.
fn without_code_spans(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let (before, from) = rest.split_at(start);
        kept += before;
        let inside = from.trim_start_matches('`');
        let ticks = &from[..from.len() - inside.len()];
        rest = match closing(inside, ticks) {
            Some(end) => &inside[end..],
            None => inside,
        };
    }
    kept + rest
}

/// The end of the first run in `inside` that is exactly `ticks`.
fn closing(inside: &str, ticks: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(start) = inside[from..].find('`') {
        let start = from + start;
        let length = inside[start..].len() - inside[start..].trim_start_matches('`').len();
        from = start + length;
        if length == ticks.len() {
            return Some(from);
        }
    }
    None
}

/// The target of an inline link, from what follows its `](`: up to a title or the bracket that closes it.
fn inline_target(rest: &str) -> Option<&str> {
    let rest = rest.trim_start();
    if let Some(rest) = rest.strip_prefix('<') {
        return rest.split_once('>').map(|(target, _)| target);
    }
    let mut depth = 0_u32;
    for (at, c) in rest.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(&rest[..at]),
            ')' => depth -= 1,
            ' ' | '\t' => return Some(&rest[..at]),
            _ => {}
        }
    }
    None
}

/// `[label]: target`, but not `[^1]: a footnote`.
fn reference_target(line: &str) -> Option<&str> {
    let label = line.trim_start().strip_prefix('[')?;
    let (label, target) = label.split_once("]:")?;
    if label.starts_with('^') || label.contains(']') {
        return None;
    }
    target.split_whitespace().next().map(|target| target.trim_matches(['<', '>']))
}

/// The values of the HTML attribute `name` in a line.
fn attribute<'a>(line: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let mut pieces = line.split(name).peekable();
    let mut before = pieces.next().unwrap_or_default();
    pieces.filter_map(move |after| {
        let is_attribute = before.ends_with(' ') && line.contains('<');
        before = after;
        let value = after.strip_prefix("=\"")?;
        is_attribute.then(|| value.split_once('"').map(|(value, _)| value)).flatten()
    })
}

pub(crate) fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    ((1..=6).contains(&level) && text.starts_with(' ')).then(|| text.trim().trim_end_matches('#').trim_end())
}

/// A heading in lower case, spaces as hyphens, without punctuation and without the targets of its links.
fn slug(heading: &str) -> String {
    let mut pieces = heading.split("](");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        text += piece.split_once(')').map_or(piece, |(_, after)| after);
    }
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<String> {
        links(text).into_iter().map(|link| link.target).collect()
    }

    #[test]
    fn links_of_every_form_are_found() {
        let text = "\
See [one](a.md), ![two](b.svg \"title\") and [`three`](<c d.md>).
A link whose text is
[broken over lines](e.md#part).
[ref]: f.md
[^1]: not-a-link.md
<img alt=\"x\" src=\"g.svg\"> <a href=\"h.md\">h</a>
[brackets](i_(j).md)
";
        let expected = ["a.md", "b.svg", "c d.md", "e.md#part", "f.md", "h.md", "g.svg", "i_(j).md"];
        assert_eq!(targets(text), expected);
        assert_eq!(links(text)[3], Link { line: 3, target: "e.md#part".to_owned() });
    }

    #[test]
    fn code_has_no_links() {
        let text = "\
`[a](a.md)` and ``[b](`b.md)`` but [c](c.md)
````text
[d](d.md)
```
[e](e.md)
````
~~~
[f](f.md)
~~~
[g](g.md)
";
        assert_eq!(targets(text), ["c.md", "g.md"]);
    }

    #[test]
    fn a_lone_backtick_hides_nothing() {
        assert_eq!(targets("it`s [a](a.md)"), ["a.md"]);
    }

    #[test]
    fn anchors_are_named_as_code_hosts_name_them() {
        let text = "\
# Fencehold: `file:` & co
## P1 One [holder](x.md)
## Twice
## Twice ##
```
# not a heading
```
#not-a-heading
<a id=\"by-hand\"></a>
";
        let expected = ["by-hand", "fencehold-file--co", "p1-one-holder", "twice", "twice-1"];
        assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), expected);
    }
}
