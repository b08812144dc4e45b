//! A real browser: Debian's Chromium, headless, by the `WebDriver` protocol.
//!
//! There is one for all tests of the process, and one test at a time has it: as new, with no cookie, no log and light colours. It
//! resolves no name but those of this machine, so nothing it does can leave it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::{locked, scratch};

/// How long the driver has for an answer.
const LIMIT: Duration = Duration::from_secs(60);
/// A name of this machine under which pages are no secure context, as on a server without TLS.
pub const PLAIN_HOST: &str = "fencehold.example";
/// A name of this machine that no server knows as its own.
pub const FOREIGN_HOST: &str = "rebound.example";
/// What a wide screen has, and a phone.
const WIDE: (u32, u32) = (1280, 860);
const NARROW: (u32, u32) = (390, 844);
/// What `WebDriver` calls the reference of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The browser, while a test has it.
pub struct Chromium {
    port: u16,
    session: String,
}

/// A key, by its code in `WebDriver`.
pub const TAB: &str = "\u{e004}";
/// Also what follows a link that has the focus.
pub const ENTER: &str = "\u{e007}";
/// Also what opens what is closed.
pub const SPACE: &str = " ";
/// Held down with others.
pub const CONTROL: &str = "\u{e009}";

/// Has a test use the browser. What it shows at the end, or when the test fails, is kept as a picture of this name.
pub fn in_browser(name: &str, visit: impl FnOnce(&Chromium)) {
    static BROWSER: OnceLock<Mutex<Chromium>> = OnceLock::new();
    let browser = BROWSER.get_or_init(|| Mutex::new(Chromium::start()));
    let browser = locked(browser);
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
pub fn pictures() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // It is in the one folder of cargo's that has this file.
    let target = test.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists()).unwrap();
    let folder = target.join("tmp/screenshots");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

impl Chromium {
    fn start() -> Chromium {
        // The browser is killed and cannot remove what it keeps.
        let place = scratch("fencehold-chromium-", true).keep();
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
    pub fn command(&self, name: &str, params: &Value) -> Value {
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

    /// Goes to a page, and waits until it is loaded.
    pub fn open(&self, url: &str) {
        self.ask("POST", "/url", &json!({ "url": url }));
    }

    /// Loads the page again.
    pub fn reload(&self) {
        self.ask("POST", "/refresh", &json!({}));
    }

    /// Where the browser is.
    pub fn url(&self) -> String {
        self.ask("GET", "/url", &json!({})).as_str().unwrap().to_owned()
    }

    /// Runs the body of a function in the page: what it returns.
    pub fn script(&self, text: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({ "script": text, "args": [] }))
    }

    /// A script that calls its first argument when it has finished.
    pub fn script_until_called(&self, text: &str) -> Value {
        self.ask("POST", "/execute/async", &json!({ "script": text, "args": [] }))
    }

    fn set_size(&self, (width, height): (u32, u32), is_mobile: bool) {
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_mobile });
        self.command("Emulation.setDeviceMetricsOverride", &screen);
    }

    /// The screen of a phone.
    pub fn be_narrow(&self) {
        self.set_size(NARROW, true);
    }

    /// The screen of a computer.
    pub fn be_wide(&self) {
        self.set_size(WIDE, false);
    }

    /// What the system of the person prefers.
    pub fn set_colours(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.command("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Whether pages may run scripts.
    pub fn set_scripts(&self, are_on: bool) {
        self.command("Emulation.setScriptExecutionDisabled", &json!({ "value": !are_on }));
    }

    fn try_find(&self, css: &str) -> Option<String> {
        let found = self.try_ask("POST", "/element", &json!({ "using": "css selector", "value": css }));
        found.ok()?[ELEMENT].as_str().map(str::to_owned)
    }

    /// Whether there is such an element now.
    pub fn has(&self, css: &str) -> bool {
        self.try_find(css).is_some()
    }

    /// Does something with the first element that is found so, once it is there. The page may put another in its place at any
    /// moment, and then it is done with that.
    fn at(&self, using: &str, value: &str, method: &str, act: &str, body: &Value) -> Value {
        let query = json!({ "using": using, "value": value });
        let mut done = None;
        self.until(&format!("{value:?} on the page"), || {
            let Ok(found) = self.try_ask("POST", "/element", &query) else { return false };
            let element = found[ELEMENT].as_str().unwrap();
            match self.try_ask(method, &format!("/element/{element}/{act}"), body) {
                Ok(value) => done = Some(value),
                Err(problem) => assert_eq!(problem["error"], "stale element reference", "{value}: {problem}"),
            }
            done.is_some()
        });
        done.unwrap()
    }

    /// Clicks at an element, once it is there.
    pub fn click(&self, css: &str) {
        self.at("css selector", css, "POST", "click", &json!({}));
    }

    /// Follows the first link with this text.
    pub fn follow(&self, text: &str) {
        self.at("link text", text, "POST", "click", &json!({}));
    }

    /// Types into a field.
    pub fn write(&self, css: &str, text: &str) {
        self.at("css selector", css, "POST", "value", &json!({ "text": text }));
    }

    /// Presses keys, each while those before it in the same text are held down.
    pub fn press(&self, keys: &[&str]) {
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
    pub fn text(&self) -> String {
        let text = self.at("css selector", "body", "GET", "text", &json!({}));
        text.as_str().unwrap().to_owned()
    }

    /// Waits until a person can read this.
    pub fn reads(&self, text: &str) {
        self.until(&format!("{text:?} on the page"), || self.try_text().contains(text));
    }

    fn try_text(&self) -> String {
        let text = self
            .try_find("body")
            .and_then(|element| self.try_ask("GET", &format!("/element/{element}/text"), &json!({})).ok());
        text.and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Waits until something can be seen.
    pub fn until(&self, what: &str, mut seen: impl FnMut() -> bool) {
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
    pub fn picture(&self, name: &str) {
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
    pub fn was_clean(&self, origin: &str, but: &[&str]) {
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
