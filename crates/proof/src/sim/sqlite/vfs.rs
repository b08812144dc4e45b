//! How SQLite gets at a simulated disk: a `sqlite3_vfs` that hands every file of a mounted directory to [`SimFiles`], and
//! every other file to the system's own. It is the process's default, so that the code under test is not touched.
//!
//! One connection at a time has such a file open, so locks and shared memory need no arbiter: a lock is always granted, and
//! the shared memory belongs to the connection. What is left of a connection whose process is gone does nothing.

#![expect(unsafe_code, reason = "SQLite's interface for file systems is a table of C functions")]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};

use rusqlite::ffi;

use super::files::{SimFiles, Trouble};

type SharedFiles = Arc<Mutex<SimFiles>>;

/// Every mounted directory, with a slash at its end.
static MOUNTED: Mutex<BTreeMap<String, SharedFiles>> = Mutex::new(BTreeMap::new());

/// The system's own vfs.
struct Original(*mut ffi::sqlite3_vfs);

// SAFETY: SQLite's own vfs lives as long as the process and may be used from every thread.
unsafe impl Send for Original {}
// SAFETY: as above.
unsafe impl Sync for Original {}

static ORIGINAL: OnceLock<Original> = OnceLock::new();

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a directory a simulated disk.
pub(super) fn mount(directory: &Path) -> SharedFiles {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(register);
    // SAFETY: asking for no bytes has SQLite start its randomness over, so that one seed gives one story.
    unsafe { ffi::sqlite3_randomness(0, ptr::null_mut()) };
    let disk = SharedFiles::default();
    lock(&MOUNTED).insert(format!("{}/", directory.display()), Arc::clone(&disk));
    disk
}

pub(super) fn unmount(disk: &SharedFiles) {
    lock(&MOUNTED).retain(|_, mounted| !Arc::ptr_eq(mounted, disk));
}

/// The disk that a path is on.
fn disk_of(path: &str) -> Option<SharedFiles> {
    let mounted = lock(&MOUNTED);
    let on = |(directory, _): &(&String, &SharedFiles)| path.starts_with(directory.as_str());
    mounted.iter().find(on).map(|(_, disk)| Arc::clone(disk))
}

/// Writes what can be read of a file once more, and syncs it.
pub(super) fn write_again(path: &Path) -> io::Result<()> {
    let Some((name, disk)) = path.to_str().and_then(|name| Some((name, disk_of(name)?))) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let mut files = lock(&disk);
    let mut bytes = vec![0; files.len(name)];
    let failed = |trouble: Trouble| io::Error::other(format!("{trouble:?}"));
    files.read(name, 0, &mut bytes).map_err(failed)?;
    if bytes.is_empty() {
        return Ok(());
    }
    files.write(name, 0, &bytes).map_err(failed)?;
    files.sync(name).map_err(failed)
}

fn register() {
    // SAFETY: a null name asks for the default vfs, which is there as soon as SQLite is initialised, and is a plain table.
    // The copy is leaked: SQLite keeps a pointer to it for as long as the process lives.
    unsafe {
        ffi::sqlite3_initialize();
        let original = ffi::sqlite3_vfs_find(ptr::null());
        let size = c_int::try_from(size_of::<VfsFile>()).unwrap_or(c_int::MAX);
        let vfs = ffi::sqlite3_vfs {
            szOsFile: size.max((*original).szOsFile),
            pNext: ptr::null_mut(),
            zName: c"simulated".as_ptr(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xRandomness: Some(randomness),
            ..*original
        };
        let _ = ORIGINAL.set(Original(original));
        ffi::sqlite3_vfs_register(Box::leak(Box::new(vfs)), 1);
    }
}

fn original() -> *mut ffi::sqlite3_vfs {
    ORIGINAL.get().map_or(ptr::null_mut(), |original| original.0)
}

/// An open file, as SQLite sees it: it gives the room and reads the first field.
#[repr(C)]
struct VfsFile {
    base: ffi::sqlite3_file,
    open: *mut OpenVfsFile,
}

/// What is behind a handle.
struct OpenVfsFile {
    disk: SharedFiles,
    name: String,
    /// Which process opened it.
    life: u64,
    /// Stands in for the shared memory of the log's index. Boxed: SQLite keeps pointers into it.
    regions: Vec<Box<[u8]>>,
}

impl OpenVfsFile {
    /// The disk, unless the process that opened this file is gone.
    fn disk(&self) -> Option<MutexGuard<'_, SimFiles>> {
        let files = lock(&self.disk);
        (files.life() == self.life).then_some(files)
    }
}

/// # Safety
///
/// `file` must have been opened by [`open`] and not been closed since.
unsafe fn behind<'a>(file: *mut ffi::sqlite3_file) -> &'a mut OpenVfsFile {
    // SAFETY: `open` wrote a whole `VfsFile` there, with a pointer that only `close` takes back. SQLite uses a file from one
    // thread at a time.
    unsafe { &mut *(*file.cast::<VfsFile>()).open }
}

/// # Safety
///
/// `path` must be null or a string that ends with a null byte.
unsafe fn text<'a>(path: *const c_char) -> Option<&'a str> {
    if path.is_null() {
        return None;
    }
    // SAFETY: by the contract of this function.
    unsafe { CStr::from_ptr(path) }.to_str().ok()
}

fn code(outcome: Result<(), Trouble>, failed: c_int) -> c_int {
    match outcome {
        Ok(()) => ffi::SQLITE_OK,
        Err(Trouble::Full) => ffi::SQLITE_FULL,
        Err(Trouble::Failed) => failed,
    }
}

fn place(at: ffi::sqlite3_int64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    path: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let _ = vfs;
    // SAFETY: SQLite hands over a path that ends with a null byte, or null for a temporary file.
    let found = unsafe { text(path) }.and_then(|path| Some((path.to_owned(), disk_of(path)?)));
    let Some((name, disk)) = found else {
        let vfs = original();
        // SAFETY: `file` has room for a file of the original vfs, which fills it in and serves it from then on.
        return unsafe { (*vfs).xOpen }
            .map_or(ffi::SQLITE_CANTOPEN, |open| unsafe { open(vfs, path, file, flags, out_flags) });
    };
    let life = {
        let mut files = lock(&disk);
        files.make(&name);
        files.life()
    };
    let open = Box::into_raw(Box::new(OpenVfsFile { disk, name, life, regions: Vec::new() }));
    // SAFETY: `file` has room for a `VfsFile` by `szOsFile`, and `out_flags` is null or may be written.
    unsafe {
        file.cast::<VfsFile>()
            .write(VfsFile { base: ffi::sqlite3_file { pMethods: &raw const METHODS }, open });
        if !out_flags.is_null() {
            *out_flags = flags;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, path: *const c_char, sync: c_int) -> c_int {
    let _ = vfs;
    // SAFETY: SQLite hands over a path that ends with a null byte.
    if let Some((path, disk)) = unsafe { text(path) }.and_then(|path| Some((path, disk_of(path)?))) {
        return code(lock(&disk).remove(path), ffi::SQLITE_IOERR_DELETE);
    }
    let vfs = original();
    // SAFETY: the original vfs is asked what was asked of this one.
    unsafe { (*vfs).xDelete }.map_or(ffi::SQLITE_IOERR, |delete| unsafe { delete(vfs, path, sync) })
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let _ = vfs;
    // SAFETY: SQLite hands over a path that ends with a null byte.
    if let Some((path, disk)) = unsafe { text(path) }.and_then(|path| Some((path, disk_of(path)?))) {
        // SAFETY: SQLite hands over where to put the answer.
        unsafe { *out = c_int::from(lock(&disk).has(path)) };
        return ffi::SQLITE_OK;
    }
    let vfs = original();
    // SAFETY: the original vfs is asked what was asked of this one.
    unsafe { (*vfs).xAccess }.map_or(ffi::SQLITE_IOERR, |access| unsafe { access(vfs, path, flags, out) })
}

unsafe extern "C" fn full_pathname(
    vfs: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    let _ = vfs;
    // SAFETY: SQLite hands over a path that ends with a null byte.
    if let Some(name) = unsafe { text(path) }.filter(|path| disk_of(path).is_some()) {
        if name.len() >= usize::try_from(room).unwrap_or(0) {
            return ffi::SQLITE_CANTOPEN;
        }
        // SAFETY: the path and the null byte at its end fit into the room that SQLite gives. It is absolute already.
        unsafe { ptr::copy_nonoverlapping(path, out, name.len() + 1) };
        return ffi::SQLITE_OK;
    }
    let vfs = original();
    // SAFETY: the original vfs is asked what was asked of this one.
    unsafe { (*vfs).xFullPathname }.map_or(ffi::SQLITE_CANTOPEN, |full| unsafe { full(vfs, path, room, out) })
}

/// Always the same: one seed, one story.
unsafe extern "C" fn randomness(vfs: *mut ffi::sqlite3_vfs, count: c_int, out: *mut c_char) -> c_int {
    let _ = vfs;
    let many = usize::try_from(count).unwrap_or(0);
    // SAFETY: SQLite gives room for as many bytes as it asks for.
    unsafe { ptr::write_bytes(out, 0x5a, many) };
    count
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once, and does not use it afterwards.
    unsafe {
        let handle = file.cast::<VfsFile>();
        drop(Box::from_raw((*handle).open));
        (*handle).open = ptr::null_mut();
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    into: *mut c_void,
    count: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: the file is open, and SQLite gives room for as many bytes as it asks for.
    let (open, into) = unsafe {
        let many = usize::try_from(count).unwrap_or(0);
        (behind(file), std::slice::from_raw_parts_mut(into.cast::<u8>(), many))
    };
    let Some(files) = open.disk() else { return ffi::SQLITE_IOERR_READ };
    match files.read(&open.name, place(at), into) {
        Ok(read) if read == into.len() => ffi::SQLITE_OK,
        Ok(_) => ffi::SQLITE_IOERR_SHORT_READ,
        Err(_) => ffi::SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    bytes: *const c_void,
    count: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: the file is open, and SQLite hands over as many bytes as it says.
    let (open, bytes) = unsafe {
        let many = usize::try_from(count).unwrap_or(0);
        (behind(file), std::slice::from_raw_parts(bytes.cast::<u8>(), many))
    };
    let Some(mut files) = open.disk() else { return ffi::SQLITE_IOERR_WRITE };
    code(files.write(&open.name, place(at), bytes), ffi::SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, len: ffi::sqlite3_int64) -> c_int {
    // SAFETY: the file is open.
    let open = unsafe { behind(file) };
    let Some(mut files) = open.disk() else { return ffi::SQLITE_IOERR_TRUNCATE };
    code(files.truncate(&open.name, place(len)), ffi::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    let _ = flags;
    // SAFETY: the file is open.
    let open = unsafe { behind(file) };
    let Some(mut files) = open.disk() else { return ffi::SQLITE_IOERR_FSYNC };
    code(files.sync(&open.name), ffi::SQLITE_IOERR_FSYNC)
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: the file is open.
    let open = unsafe { behind(file) };
    let Some(files) = open.disk() else { return ffi::SQLITE_IOERR_FSTAT };
    // SAFETY: SQLite hands over where to put the answer.
    unsafe { *out = ffi::sqlite3_int64::try_from(files.len(&open.name)).unwrap_or(0) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn grant(file: *mut ffi::sqlite3_file, lock: c_int) -> c_int {
    let _ = (file, lock);
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    let _ = file;
    // SAFETY: SQLite hands over where to put the answer.
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn control(file: *mut ffi::sqlite3_file, what: c_int, with: *mut c_void) -> c_int {
    let _ = (file, what, with);
    ffi::SQLITE_NOTFOUND
}

/// As the system's own vfs has it.
unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    let _ = file;
    4_096
}

/// As the system's own vfs has it: a power cut damages nothing but what was being written.
unsafe extern "C" fn characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    let _ = file;
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the file is open.
    let open = unsafe { behind(file) };
    let (nth, size) = (usize::try_from(region).unwrap_or(0), usize::try_from(size).unwrap_or(0));
    while extend != 0 && open.regions.len() <= nth {
        open.regions.push(vec![0; size].into_boxed_slice());
    }
    let region = open.regions.get_mut(nth);
    // SAFETY: SQLite hands over where to put the pointer. The region does not move and lives until the file is closed.
    unsafe { *out = region.map_or(ptr::null_mut(), |region| region.as_mut_ptr().cast()) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    from: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    let _ = (file, from, count, flags);
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    let _ = file;
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    let _ = delete;
    // SAFETY: the file is open, and SQLite does not use its shared memory after this.
    unsafe { behind(file) }.regions.clear();
    ffi::SQLITE_OK
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(grant),
    xUnlock: Some(grant),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};
