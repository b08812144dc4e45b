//! A browser without JavaScript: it keeps cookies, sends forms with the origin of their page, and does not follow redirects by itself.

use std::io::Write as _;
use std::net::TcpStream;

use crate::security::fixture::{HttpReply, SecurityFixture, TestToken, hear};

pub(crate) struct Browser<'a> {
    pub(crate) fixture: &'a SecurityFixture,
    pub(crate) cookie: Option<String>,
}

impl<'a> Browser<'a> {
    pub(crate) fn new(fixture: &'a SecurityFixture) -> Self {
        Browser { fixture, cookie: None }
    }

    /// One that has logged in.
    pub(crate) fn logged_in(fixture: &'a SecurityFixture, token: &TestToken) -> Self {
        let mut browser = Browser::new(fixture);
        let reply = browser.log_in(&token.bearer.reveal(), "");
        assert_eq!(reply.status, 303, "{reply:?}");
        browser
    }

    pub(crate) fn log_in(&mut self, access_token: &str, back: &str) -> HttpReply {
        let reply = self.send_form("/login", SAME_ORIGIN, &[("access_token", access_token), ("back", back)]);
        let set = reply.head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        if let Some(set) = set {
            self.cookie = set.split(';').next().map(str::to_owned);
        }
        reply
    }

    /// Sends a request, and leaves its answer to be read.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = self.fixture.connect();
        let cookie = self
            .cookie
            .as_ref()
            .map_or_else(String::new, |pair| format!("cookie: {pair}\r\n"));
        let host = if headers.contains("host: ") { "" } else { "host: localhost:7117\r\n" };
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\n{host}connection: close\r\n{cookie}{headers}content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream
    }

    pub(crate) fn get(&self, path: &str) -> HttpReply {
        hear(self.send("GET", path, "", ""))
    }

    /// A page, which must be there.
    pub(crate) fn page(&self, path: &str) -> String {
        let reply = self.get(path);
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        reply.body
    }

    pub(crate) fn send_form(&self, path: &str, headers: &str, fields: &[(&str, &str)]) -> HttpReply {
        let body = serde_html_form::to_string(fields).unwrap();
        let headers = format!("{headers}content-type: application/x-www-form-urlencoded\r\n");
        hear(self.send("POST", path, &headers, &body))
    }

    /// Fills in a form of a page and sends it: what is hidden in it comes along.
    pub(crate) fn submit(&self, page: &str, action: &str, fields: &[(&str, &str)]) -> HttpReply {
        let form = form_of(page, action).unwrap_or_else(|| panic!("no form {action} in {page}"));
        let mut all = hidden_fields(form);
        all.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let all: Vec<(&str, &str)> =
            all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.send_form(&format!("/{action}"), SAME_ORIGIN, &all)
    }
}

/// What a browser says of a form of our own page.
pub(crate) const SAME_ORIGIN: &str = "origin: http://localhost:7117\r\nsec-fetch-site: same-origin\r\n";

/// The first form of a page with this action.
pub(crate) fn form_of<'p>(page: &'p str, action: &str) -> Option<&'p str> {
    let (_, after) = page.split_once(&format!("<form action=\"{action}"))?;
    after.split_once("</form>").map(|(form, _)| form)
}

pub(crate) fn hidden_fields(form: &str) -> Vec<(String, String)> {
    let inputs = form.split("<input type=\"hidden\" name=\"").skip(1);
    inputs
        .map(|input| {
            let (name, rest) = input.split_once("\" value=\"").unwrap();
            let value = rest.split_once('"').unwrap().0;
            let value = value
                .replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&quot;", "\"")
                .replace("&amp;", "&");
            (name.to_owned(), value)
        })
        .collect()
}

/// The text of every attribute of this name.
pub(crate) fn attributes<'p>(page: &'p str, name: &str) -> Vec<&'p str> {
    let begins = format!(" {name}=\"");
    page.split(&begins)
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('"')?.0))
        .collect()
}
