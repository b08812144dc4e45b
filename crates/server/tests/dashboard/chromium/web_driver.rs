//! A real browser: Debian's Chromium, headless, by the `WebDriver` protocol.
//!
//! There is one for all tests of the process, and one test at a time has it: as new, with no cookie, no log and light colours. It
//! resolves no name but those of this machine, so nothing it does can leave it.
#![allow(
    clippy::disallowed_methods,
    reason = "what a page shows is looked at again and again, in real time; nothing is ordered by it"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::security::fixture::LIMIT;

/// A name of this machine under which pages are no secure context, as on a server without TLS.
pub(super) const PLAIN_HOST: &str = "fencehold.example";
/// A name of this machine that no server knows as its own.
pub(super) const FOREIGN_HOST: &str = "rebound.example";
/// What a wide screen has, and a phone.
const WIDE: (u32, u32) = (1280, 860);
const NARROW: (u32, u32) = (390, 844);
/// What `WebDriver` calls the reference of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub(super) struct Chromium {
    port: u16,
    session: String,
}

/// Keys by their code in `WebDriver`.
pub(super) const TAB: &str = "\u{e004}";
pub(super) const ENTER: &str = "\u{e007}";
pub(super) const SPACE: &str = " ";
pub(super) const CONTROL: &str = "\u{e009}";

/// Has a test use the browser. What it shows at the end, or when the test fails, is kept as a picture of this name.
pub(super) fn in_browser(name: &str, visit: impl FnOnce(&Chromium)) {
    static BROWSER: OnceLock<Mutex<Chromium>> = OnceLock::new();
    let browser = BROWSER.get_or_init(|| Mutex::new(Chromium::start()));
    let browser = browser.lock().unwrap_or_else(PoisonError::into_inner);
    browser.make_new();
    let _picture = LastPicture { browser: &browser, name };
    visit(&browser);
}

struct LastPicture<'b> {
    browser: &'b Chromium,
    name: &'b str,
}

impl Drop for LastPicture<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.browser.picture(&format!("{}-failed", self.name));
        }
    }
}

/// Where pictures are kept.
pub(super) fn pictures() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

impl Chromium {
    fn start() -> Chromium {
        let place = own_folder();
        let binary = place.join("chromium-that-ends");
        std::fs::write(&binary, "#!/bin/sh\nexec setpriv --pdeathsig KILL -- chromium \"$@\"\n").unwrap();
        std::fs::set_permissions(&binary, PermissionsExt::from_mode(0o755)).unwrap();
        let (tell, told) = mpsc::channel();
        // The driver dies with the thread that started it, so it is one that stays; and so does the browser with the driver.
        std::thread::spawn(move || {
            let mut driver = Command::new("setpriv")
                .args(["--pdeathsig", "KILL", "--", "chromedriver", "--port=0"])
                .env("TMPDIR", &place)
                .env("HOME", &place)
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("chromedriver, which `cargo xtask servers` installs");
            let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
            let port = lines.find_map(|line| {
                line.split_once("successfully on port ")?
                    .1
                    .trim_end_matches('.')
                    .parse::<u16>()
                    .ok()
            });
            tell.send(port.expect("a driver that starts")).unwrap();
            lines.for_each(drop);
            let _ = driver.wait();
        });
        let port = told.recv().unwrap();
        let hosts = format!(
            "--host-resolver-rules=MAP {PLAIN_HOST} 127.0.0.1, MAP {FOREIGN_HOST} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
        );
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            &hosts,
        ];
        let options = json!({ "alwaysMatch": {
            "goog:chromeOptions": { "args": args, "binary": binary },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
            "timeouts": { "script": 60_000, "pageLoad": 60_000 },
        } });
        let mut browser = Chromium { port, session: String::new() };
        let started = browser.ask("POST", "/session", &json!({ "capabilities": options }));
        browser.session = format!("/session/{}", started["sessionId"].as_str().unwrap());
        browser
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_ask(method, path, body)
            .unwrap_or_else(|problem| panic!("{method} {path} {body}: {problem}"))
    }

    fn try_ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let path = format!("{}{path}", self.session);
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        // It keeps connections open, whatever it is asked.
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "the driver is gone");
        }
        let head = head.to_lowercase();
        let length = head.split_once("content-length:").unwrap().1.lines().next().unwrap();
        let mut body = vec![0; length.trim().parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        let value = serde_json::from_slice::<Value>(&body).unwrap()["value"].take();
        if head.starts_with("http/1.1 200") { Ok(value) } else { Err(value) }
    }

    /// The browser's own commands.
    pub(super) fn command(&self, name: &str, params: &Value) -> Value {
        self.ask("POST", "/goog/cdp/execute", &json!({ "cmd": name, "params": params }))
    }

    /// As if it had been started for this test.
    fn make_new(&self) {
        self.set_scripts(true);
        self.open("about:blank");
        self.command("Network.clearBrowserCookies", &json!({}));
        self.set_size(WIDE, false);
        self.set_colours("light");
        self.log("browser");
        self.log("performance");
    }

    pub(super) fn open(&self, url: &str) {
        self.ask("POST", "/url", &json!({ "url": url }));
    }

    pub(super) fn reload(&self) {
        self.ask("POST", "/refresh", &json!({}));
    }

    pub(super) fn url(&self) -> String {
        self.ask("GET", "/url", &json!({})).as_str().unwrap().to_owned()
    }

    pub(super) fn script(&self, text: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({ "script": text, "args": [] }))
    }

    /// A script that calls its first argument when it has finished.
    pub(super) fn script_until_called(&self, text: &str) -> Value {
        self.ask("POST", "/execute/async", &json!({ "script": text, "args": [] }))
    }

    fn set_size(&self, (width, height): (u32, u32), is_mobile: bool) {
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_mobile });
        self.command("Emulation.setDeviceMetricsOverride", &screen);
    }

    /// The screen of a phone.
    pub(super) fn be_narrow(&self) {
        self.set_size(NARROW, true);
    }

    pub(super) fn be_wide(&self) {
        self.set_size(WIDE, false);
    }

    /// What the system of the person prefers.
    pub(super) fn set_colours(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.command("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    pub(super) fn set_scripts(&self, are_on: bool) {
        self.command("Emulation.setScriptExecutionDisabled", &json!({ "value": !are_on }));
    }

    fn try_find(&self, css: &str) -> Option<String> {
        let found = self.try_ask("POST", "/element", &json!({ "using": "css selector", "value": css }));
        found.ok()?[ELEMENT].as_str().map(str::to_owned)
    }

    pub(super) fn has(&self, css: &str) -> bool {
        self.try_find(css).is_some()
    }

    /// An element, once it is there.
    fn find(&self, css: &str) -> String {
        let mut found = None;
        self.until(&format!("{css} on the page"), || {
            found = self.try_find(css);
            found.is_some()
        });
        found.unwrap()
    }

    pub(super) fn click(&self, css: &str) {
        let element = self.find(css);
        self.ask("POST", &format!("/element/{element}/click"), &json!({}));
    }

    /// Follows the first link with this text.
    pub(super) fn follow(&self, text: &str) {
        let query = json!({ "using": "link text", "value": text });
        let mut found = None;
        self.until(&format!("a link {text:?}"), || {
            found = self.try_ask("POST", "/element", &query).ok();
            found.is_some()
        });
        let element = found.unwrap()[ELEMENT].as_str().unwrap().to_owned();
        self.ask("POST", &format!("/element/{element}/click"), &json!({}));
    }

    /// Types into a field.
    pub(super) fn write(&self, css: &str, text: &str) {
        let element = self.find(css);
        self.ask("POST", &format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// Presses keys, each while those before it in the same text are held down.
    pub(super) fn press(&self, keys: &[&str]) {
        let downs = keys.iter().map(|key| json!({ "type": "keyDown", "value": key }));
        let ups = keys.iter().rev().map(|key| json!({ "type": "keyUp", "value": key }));
        let all: Vec<Value> = downs.chain(ups).collect();
        self.ask(
            "POST",
            "/actions",
            &json!({ "actions": [{ "type": "key", "id": "keys", "actions": all }] }),
        );
    }

    /// What a person reads on the page.
    pub(super) fn text(&self) -> String {
        let element = self.find("body");
        let text = self.ask("GET", &format!("/element/{element}/text"), &json!({}));
        text.as_str().unwrap().to_owned()
    }

    /// Waits until a person can read this.
    pub(super) fn reads(&self, text: &str) {
        self.until(&format!("{text:?} on the page"), || self.try_text().contains(text));
    }

    fn try_text(&self) -> String {
        let text = self
            .try_find("body")
            .and_then(|element| self.try_ask("GET", &format!("/element/{element}/text"), &json!({})).ok());
        text.and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Waits until something can be seen.
    pub(super) fn until(&self, what: &str, mut seen: impl FnMut() -> bool) {
        let began = Instant::now();
        while !seen() {
            assert!(
                began.elapsed() < LIMIT / 2,
                "never seen: {what}, at {}, in {}",
                self.url(),
                self.try_text()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Keeps a picture of the whole page.
    pub(super) fn picture(&self, name: &str) {
        let params = json!({ "captureBeyondViewport": true });
        let taken = self.command("Page.captureScreenshot", &params);
        let bytes = base64::engine::general_purpose::STANDARD.decode(taken["data"].as_str().unwrap());
        std::fs::write(pictures().join(format!("{name}.png")), bytes.unwrap()).unwrap();
    }

    /// What was logged since this was asked last.
    fn log(&self, kind: &str) -> Vec<Value> {
        let log = self.ask("POST", "/se/log", &json!({ "type": kind }));
        log.as_array().cloned().unwrap_or_default()
    }

    /// The console said nothing, also not of the content security policy, but for these; and every request went to this server.
    pub(super) fn was_clean(&self, origin: &str, but: &[&str]) {
        let said: Vec<String> = self
            .log("browser")
            .iter()
            .map(|entry| entry["message"].as_str().unwrap_or_default().to_owned())
            .filter(|message| !but.iter().any(|known| message.contains(known)))
            .collect();
        assert!(said.is_empty(), "the console says {said:?}");
        let mut asked = Vec::new();
        for entry in self.log("performance") {
            let event: Value = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
            let event = &event["message"];
            if event["method"] == "Network.requestWillBeSent" {
                asked.push(event["params"]["request"]["url"].as_str().unwrap().to_owned());
            }
        }
        let elsewhere: Vec<&String> = asked
            .iter()
            .filter(|url| !url.starts_with(origin) && !url.starts_with("about:"))
            .collect();
        assert!(!asked.is_empty() && elsewhere.is_empty(), "it asked {elsewhere:?}");
    }
}

/// A folder for what the browser keeps. Those of processes that have ended are removed: it is killed and cannot do that itself.
fn own_folder() -> PathBuf {
    const NAME: &str = "chromium-";
    let above = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for entry in std::fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(NAME);
        if owner.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let own = above.join(format!("{NAME}{}", std::process::id()));
    std::fs::create_dir_all(&own).unwrap();
    own
}
