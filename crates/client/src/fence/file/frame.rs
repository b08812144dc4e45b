//! What a fence keeps on disk, byte for byte.
//!
//! A journal is a header and then frames. A frame is one step: what it changes of what is remembered, and the bytes that
//! it adds to the file. Each carries a check over itself and the frame before it, so that a torn frame, or a leftover of an
//! older journal, is never taken for a whole one.
//!
//! ```text
//! header   magic and version (16)   generation (8)
//! frame    length of head (4)   length of bytes (4)   check (8)   head   bytes
//! note     generation (8)   end (8)   check (8)      in the lock: up to where which journal is in order
//! ```

use fencehold_core::{Key, Namespace, Owner, Token};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The last byte is the version of the layout.
const MAGIC: [u8; 16] = *b"fencehold-fence1";
pub(super) const HEADER_BYTES: usize = 24;
const PREFIX_BYTES: usize = 16;

/// Ties a frame to everything before it.
pub(super) type FrameChain = [u8; 8];

/// One thing that is remembered, or no longer is. New kinds go to the end: their position is what is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum JournalEntry {
    Raised { namespace: Namespace, key: Key, token: Token, by: Option<Owner> },
    Forgotten { namespace: Namespace, key: Key },
    Made(AppendId),
}

/// An append that was made: the hash of its key and idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct AppendId([u8; 16]);

impl AppendId {
    /// An idempotency key belongs to the key it is used under: two jobs may both call a line `summary`.
    pub(super) fn new(namespace: &Namespace, key: &Key, idempotency_key: &str) -> Self {
        // No name contains a control character, so these parts cannot run into each other.
        let text = format!("{namespace}\n{key}\n{idempotency_key}");
        AppendId(short(&Sha256::digest(text)))
    }
}

/// Where the bytes of a frame go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FrameTarget {
    /// The inode of the file as it was when this was decided.
    pub(super) inode: u64,
    pub(super) offset: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FrameHead {
    pub(super) entries: Vec<JournalEntry>,
    pub(super) target: Option<FrameTarget>,
}

/// A frame that was read.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) head: FrameHead,
    pub(super) bytes: &'a [u8],
    pub(super) check: FrameChain,
    /// How long all of it is in the journal.
    pub(super) length: usize,
}

/// What a header turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JournalHeader {
    Ours { generation: u64, check: FrameChain },
    OtherVersion,
    Foreign,
}

pub(super) fn write_header(generation: u64) -> (Vec<u8>, FrameChain) {
    let header = [&MAGIC[..], &generation.to_le_bytes()].concat();
    let check = short(&Sha256::digest(&header));
    (header, check)
}

pub(super) fn read_header(bytes: &[u8]) -> JournalHeader {
    let Some((magic, generation)) =
        bytes.get(..HEADER_BYTES).and_then(|bytes| bytes.split_first_chunk::<16>())
    else {
        return JournalHeader::Foreign;
    };
    if *magic != MAGIC {
        let ours = magic[..15] == MAGIC[..15];
        return if ours { JournalHeader::OtherVersion } else { JournalHeader::Foreign };
    }
    let generation = u64::from_le_bytes(short(generation));
    JournalHeader::Ours { generation, check: write_header(generation).1 }
}

/// A frame as it stands in the journal. `None` where it is too long to be one.
pub(super) fn write(before: FrameChain, head: &FrameHead, bytes: &[u8]) -> Option<(Vec<u8>, FrameChain)> {
    let head = postcard::to_stdvec(head).ok()?;
    let lengths =
        [u32::try_from(head.len()).ok()?.to_le_bytes(), u32::try_from(bytes.len()).ok()?.to_le_bytes()];
    let check = check(before, &lengths.concat(), &head, bytes);
    Some(([&lengths.concat()[..], &check, &head, bytes].concat(), check))
}

/// The frame at the start of these bytes, or `None` if none is whole there.
pub(super) fn read(before: FrameChain, journal: &[u8]) -> Option<Frame<'_>> {
    let (prefix, rest) = journal.split_at_checked(PREFIX_BYTES)?;
    let number = |at: usize| {
        usize::try_from(u32::from_le_bytes([prefix[at], prefix[at + 1], prefix[at + 2], prefix[at + 3]]))
    };
    let (head_length, bytes_length) = (number(0).ok()?, number(4).ok()?);
    let (head, rest) = rest.split_at_checked(head_length)?;
    let bytes = rest.get(..bytes_length)?;
    let check = check(before, &prefix[..8], head, bytes);
    if check != prefix[8..] {
        return None;
    }
    let head = postcard::from_bytes(head).ok()?;
    Some(Frame { head, bytes, check, length: PREFIX_BYTES + head_length + bytes_length })
}

pub(super) fn write_note(generation: u64, end: u64) -> Vec<u8> {
    let note = [generation.to_le_bytes(), end.to_le_bytes()].concat();
    let check: FrameChain = short(&Sha256::digest(&note));
    [&note[..], &check].concat()
}

/// The generation and the end that a note names, or `None` if there is no note, or a torn one.
pub(super) fn read_note(note: &[u8]) -> Option<(u64, u64)> {
    let (generation, rest) = note.split_first_chunk::<8>()?;
    let (end, _) = rest.split_first_chunk::<8>()?;
    let (generation, end) = (u64::from_le_bytes(*generation), u64::from_le_bytes(*end));
    (write_note(generation, end) == note).then_some((generation, end))
}

fn check(before: FrameChain, lengths: &[u8], head: &[u8], bytes: &[u8]) -> FrameChain {
    let hash = Sha256::new().chain_update(before).chain_update(lengths);
    short(&hash.chain_update(head).chain_update(bytes).finalize())
}

/// The first bytes of a hash, which is longer than any use of it here.
fn short<const N: usize>(digest: &[u8]) -> [u8; N] {
    let mut short = [0; N];
    short.copy_from_slice(&digest[..N]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> FrameHead {
        let (namespace, key) = (Namespace::default(), Key::new("reports/daily").unwrap());
        let raised = JournalEntry::Raised {
            namespace: namespace.clone(),
            key: key.clone(),
            token: Token::new(34),
            by: Some(Owner::new("host/1/a").unwrap()),
        };
        let made = JournalEntry::Made(AppendId::new(&namespace, &key, "line-1"));
        FrameHead {
            entries: vec![raised, made, JournalEntry::Forgotten { namespace, key }],
            target: Some(FrameTarget { inode: 9, offset: 7 }),
        }
    }

    #[test]
    fn a_frame_comes_back_as_it_was_written() {
        let (header, before) = write_header(3);
        assert_eq!(read_header(&header), JournalHeader::Ours { generation: 3, check: before });
        let (written, check) = write(before, &head(), b"one line\n").unwrap();
        let read = read(before, &written).unwrap();
        assert_eq!((read.head, read.bytes), (head(), &b"one line\n"[..]));
        assert_eq!((read.check, read.length), (check, written.len()));
    }

    /// The journals of released versions must stay readable: this is what version 1 looks like.
    #[test]
    fn the_layout_does_not_change_unnoticed() {
        let (header, before) = write_header(1);
        let (written, _) = write(before, &head(), b"x").unwrap();
        let hex: Vec<String> = header.iter().chain(&written).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex.concat(), LAYOUT_1);
    }

    const LAYOUT_1: &str = "66656e6365686f6c642d66656e63653101000000000000004e000000010000005d1185d992c3e507\
        03000764656661756c740d7265706f7274732f6461696c79220108686f73742f312f6102e59c681d1c342cc8be1aac80fdbf893c01\
        0764656661756c740d7265706f7274732f6461696c7901090778";

    #[test]
    fn a_torn_or_changed_frame_is_none() {
        let (_, before) = write_header(1);
        let (written, _) = write(before, &head(), b"one line\n").unwrap();
        for length in 0..written.len() {
            assert!(read(before, &written[..length]).is_none(), "cut at {length}");
        }
        for at in 0..written.len() {
            let mut changed = written.clone();
            changed[at] ^= 1;
            assert!(read(before, &changed).is_none(), "changed at {at}");
        }
        assert!(read([0; 8], &written).is_none(), "it follows another frame");
    }

    #[test]
    fn a_torn_note_is_none() {
        let (old, new) = (write_note(1, 70_000), write_note(2, 65_000));
        assert_eq!(read_note(&new), Some((2, 65_000)));
        for cut in 0..new.len() {
            assert_eq!(read_note(&new[..cut]), None);
            let mixed = [&new[..cut], &old[cut..]].concat();
            assert!(matches!(read_note(&mixed), None | Some((1, 70_000))), "mixed at {cut}");
        }
    }

    #[test]
    fn other_files_are_told_from_ours_and_from_newer_ones() {
        let mut header = write_header(1).0;
        assert_eq!(read_header(&header[..23]), JournalHeader::Foreign);
        header[15] = b'2';
        assert_eq!(read_header(&header), JournalHeader::OtherVersion);
        header[0] = b'F';
        assert_eq!(read_header(&header), JournalHeader::Foreign);
    }

    #[test]
    fn an_idempotency_key_belongs_to_its_key_and_namespace() {
        let (default, team) = (Namespace::default(), Namespace::new("team-a").unwrap());
        let (one, two) = (Key::new("job/1").unwrap(), Key::new("job/2").unwrap());
        let made = [(&default, &one, "a"), (&default, &two, "a"), (&team, &one, "a"), (&default, &one, "b")]
            .map(|(namespace, key, idempotency_key)| AppendId::new(namespace, key, idempotency_key));
        assert_eq!(std::collections::HashSet::from(made).len(), made.len());
    }
}
