//! A small Google Cloud Storage for tests: the JSON API as far as OpenDAL speaks it, with conditions that are checked
//! and carried out under one lock, and generations that are unique but do *not* grow.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::locked;

/// An object as it is kept.
struct GcsObject {
    body: Vec<u8>,
    generation: u64,
}

#[derive(Default)]
struct GcsBucket {
    objects: BTreeMap<String, GcsObject>,
    /// Uploads that were opened: for which name, and on which condition.
    uploads: HashMap<u64, (String, Option<u64>)>,
    numbers: u64,
    /// Every write, in the order in which they were carried out or refused.
    writes: Vec<GcsWrite>,
    /// Which writes are to be held up.
    pending_holds: Vec<PendingHold>,
}

impl GcsBucket {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Unique, and all over the place: multiplication by an odd number is one to one on 48 bits.
    fn generation(&mut self) -> u64 {
        (self.number().wrapping_mul(0x5851_f42d_4c95) & 0xffff_ffff_ffff) | 1 << 50
    }

    /// Whether the object has this generation; 0: there is none.
    fn holds(&self, name: &str, condition: Option<u64>) -> bool {
        let generation = self.objects.get(name).map_or(0, |kept| kept.generation);
        condition.is_none_or(|wanted| wanted == generation)
    }

    fn write(&mut self, name: &str, condition: Option<u64>, body: Vec<u8>) -> GcsResponse {
        let is_met = self.holds(name, condition);
        self.writes.push(GcsWrite {
            name: name.to_owned(),
            if_generation_match: condition,
            generation: self.objects.get(name).map_or(0, |kept| kept.generation),
            body: String::from_utf8_lossy(&body).into_owned(),
            status: if is_met { 200 } else { 412 },
        });
        if !is_met {
            return GcsResponse::refusal(412, "conditionNotMet");
        }
        let generation = self.generation();
        self.objects.insert(name.to_owned(), GcsObject { body, generation });
        GcsResponse::json(&metadata(name, &self.objects[name]))
    }
}

/// A write as the server saw it.
#[derive(Clone, Debug)]
pub struct GcsWrite {
    /// The object's name.
    pub name: String,
    /// The generation that the object must have; 0: it must not exist.
    pub if_generation_match: Option<u64>,
    /// The generation that it had; 0: there was none.
    pub generation: u64,
    /// What was to be written.
    pub body: String,
    /// 200: it was carried out. 412: it was refused.
    pub status: u16,
}

/// How long a test waits for a write that it wants to hold up, before it has failed.
const ARRIVES_WITHIN: Duration = Duration::from_secs(60);

/// A write that is to be held up, and those at both ends of the wait.
struct PendingHold {
    text: String,
    arrived: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
}

/// One write, held up on its way.
pub struct HeldWrite {
    arrived: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

impl HeldWrite {
    /// Waits until the write is there. It has been sent, and nothing of it was carried out.
    pub fn arrived(&self) {
        self.arrived.recv_timeout(ARRIVES_WITHIN).expect("the write arrives");
    }

    /// Lets it go on.
    pub fn let_through(self) {
        self.go_on.send(()).expect("the write is held");
    }
}

/// A server of its own, whose writes can be seen and held up.
pub struct GcsServer {
    address: SocketAddr,
    bucket: Arc<Mutex<GcsBucket>>,
}

impl GcsServer {
    /// Starts it on a free port, for as long as the process lasts.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let bucket = Arc::new(Mutex::new(GcsBucket::default()));
        let served = Arc::clone(&bucket);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let bucket = Arc::clone(&served);
                thread::spawn(move || serve(&stream, address, &bucket));
            }
        });
        GcsServer { address, bucket }
    }

    /// Where it listens.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Holds up the next write whose body has this text in it, before it is carried out. The body is the second of two requests: the
    /// condition was checked by the first, and is checked again when the write is carried out.
    pub fn hold_write(&self, text: &str) -> HeldWrite {
        let (has_arrived, arrived) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        let pending = PendingHold { text: text.to_owned(), arrived: has_arrived, go_on: may_go_on };
        locked(&self.bucket).pending_holds.push(pending);
        HeldWrite { arrived, go_on }
    }

    /// Every write so far, in the order in which they were carried out or refused.
    pub fn writes(&self) -> Vec<GcsWrite> {
        locked(&self.bucket).writes.clone()
    }
}

/// Waits here if this write is to be held up.
fn wait_while_held(bucket: &Mutex<GcsBucket>, body: &[u8]) {
    let text = String::from_utf8_lossy(body);
    let hold = {
        let mut bucket = locked(bucket);
        let found = bucket.pending_holds.iter().position(|hold| text.contains(&hold.text));
        found.map(|at| bucket.pending_holds.remove(at))
    };
    if let Some(hold) = hold {
        let _ = hold.arrived.send(());
        // A test that has gone holds nothing up.
        let _ = hold.go_on.recv();
    }
}

/// Serves one connection to its end. A client that goes away is no fault.
fn serve(stream: &TcpStream, address: SocketAddr, bucket: &Mutex<GcsBucket>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let Some((name, value)) = header.split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        wait_while_held(bucket, &body);
        let answer = answer(&method, &target, body, address, &mut locked(bucket));
        answer.send(stream, method == "HEAD")?;
    }
}

fn answer(
    method: &str,
    target: &str,
    body: Vec<u8>,
    address: SocketAddr,
    bucket: &mut GcsBucket,
) -> GcsResponse {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query: HashMap<String, String> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), decode(value)))
        .collect();
    let condition = query.get("ifGenerationMatch").and_then(|text| text.parse().ok());
    let upload = query.get("upload_id").and_then(|id| id.parse::<u64>().ok());
    let name = query.get("name").cloned().unwrap_or_default();
    if !path.contains("/b/leases/o") {
        return GcsResponse::refusal(404, "notFound");
    }
    if path.starts_with("/upload/") {
        return match (method, query.get("uploadType").map(String::as_str), upload) {
            ("POST", Some("media"), _) => bucket.write(&name, condition, body),
            ("POST", Some("resumable"), None) => {
                if !bucket.holds(&name, condition) {
                    return GcsResponse::refusal(412, "conditionNotMet");
                }
                let id = bucket.number();
                bucket.uploads.insert(id, (name, condition));
                let location = format!("http://{address}{path}?uploadType=resumable&upload_id={id}");
                GcsResponse { headers: vec![("Location", location)], ..GcsResponse::json("{}") }
            }
            ("PUT", _, Some(id)) => match bucket.uploads.remove(&id) {
                Some((name, condition)) => bucket.write(&name, condition, body),
                None => GcsResponse::refusal(404, "notFound"),
            },
            _ => GcsResponse::refusal(400, "invalid"),
        };
    }
    let Some((_, object)) = path.split_once("/o") else { return GcsResponse::refusal(400, "invalid") };
    if object.is_empty() {
        return list(bucket, &query);
    }
    let name = decode(object.trim_start_matches('/'));
    let Some(kept) = bucket.objects.get(&name) else { return GcsResponse::refusal(404, "notFound") };
    match method {
        "GET" if query.get("alt").is_some_and(|alt| alt == "media") => GcsResponse {
            headers: vec![
                ("x-goog-generation", kept.generation.to_string()),
                ("ETag", format!("\"{}\"", kept.generation)),
            ],
            ..GcsResponse { status: 200, headers: vec![], body: kept.body.clone() }
        },
        "GET" => GcsResponse::json(&metadata(&name, kept)),
        "DELETE" if bucket.holds(&name, condition) => {
            bucket.objects.remove(&name);
            GcsResponse { status: 204, headers: vec![], body: vec![] }
        }
        _ => GcsResponse::refusal(412, "conditionNotMet"),
    }
}

/// Pages of two hundred, so that there is more than one in the tests.
fn list(bucket: &GcsBucket, query: &HashMap<String, String>) -> GcsResponse {
    let prefix = query.get("prefix").cloned().unwrap_or_default();
    let from = query.get("pageToken").cloned().unwrap_or_default();
    let mut found = bucket
        .objects
        .iter()
        .filter(|(name, _)| name.starts_with(&prefix) && name.as_str() > from.as_str());
    let page: Vec<_> = found.by_ref().take(200).collect();
    let items: Vec<String> = page.iter().map(|(name, kept)| metadata(name, kept)).collect();
    let next = match (found.next(), page.last()) {
        (Some(_), Some((name, _))) => format!(",\"nextPageToken\":\"{name}\""),
        _ => String::new(),
    };
    GcsResponse::json(&format!("{{\"kind\":\"storage#objects\",\"items\":[{}]{next}}}", items.join(",")))
}

fn metadata(name: &str, kept: &GcsObject) -> String {
    let GcsObject { body, generation } = kept;
    format!(
        "{{\"kind\":\"storage#object\",\"name\":\"{name}\",\"bucket\":\"leases\",\"generation\":\"{generation}\",\
         \"size\":\"{}\",\"etag\":\"{generation}\",\"contentType\":\"application/json\",\"md5Hash\":\"\",\
         \"updated\":\"2026-01-01T00:00:00.000Z\"}}",
        body.len()
    )
}

struct GcsResponse {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl GcsResponse {
    fn json(text: &str) -> Self {
        GcsResponse { status: 200, headers: vec![], body: text.as_bytes().to_vec() }
    }

    fn refusal(status: u16, reason: &str) -> Self {
        let text = format!(
            "{{\"error\":{{\"code\":{status},\"message\":\"{reason}\",\"errors\":[{{\"reason\":\"{reason}\"}}]}}}}"
        );
        GcsResponse { status, ..GcsResponse::json(&text) }
    }

    fn send(self, mut stream: &TcpStream, bodiless: bool) -> Option<()> {
        let length = ("Content-Length", self.body.len().to_string());
        let headers = self.headers.into_iter().chain([length]);
        let lines: Vec<String> = headers.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("HTTP/1.1 {} X\r\n{}", self.status, lines.concat());
        let mut bytes = format!("{head}\r\n").into_bytes();
        if !bodiless {
            bytes.extend(self.body);
        }
        stream.write_all(&bytes).ok()
    }
}

/// Undoes `%2F` and the like.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let pair = after.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        let decoded = pair
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
            .filter(|_| *first == b'%');
        bytes.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
