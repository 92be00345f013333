"""Cases of the NBD protocol in the spirit of qemu-iotests' (NBD) and libnbd's own tests.

usage: python3 nbd_cases.py SOCKET (Debian: python3-libnbd)

The agent at SOCKET serves `vm1` (16 MiB, through the page cache; data at 1-3 MiB and 8-9 MiB),
`direct` (the same, around the page cache where the file system can) and `readonly` (16 MiB of
holes). Every function whose name begins with `case_` is run on connections of its own.
"""

import errno
import sys
import traceback

import nbd

SOCKET = sys.argv[-1]
MIB = 1 << 20
HOLE_ZERO = nbd.STATE_HOLE | nbd.STATE_ZERO


def connect(export="vm1", context=True, structured=True, strict=True):
    """A connection in transmission."""
    h = nbd.NBD()
    h.set_request_structured_replies(structured)
    if context:
        h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    if not strict:
        # What libnbd would refuse by itself goes to the server.
        h.set_strict_mode(0)
    h.set_export_name(export)
    h.connect_unix(SOCKET)
    return h


def negotiating(export="vm1"):
    """A connection that is still in the handshake."""
    h = nbd.NBD()
    h.set_opt_mode(True)
    h.set_export_name(export)
    h.connect_unix(SOCKET)
    return h


def fails(number, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except nbd.Error as error:
        assert error.errnum == number, f"{error.errno} ({error.string})"
        return error.string
    raise AssertionError("it should have failed")


def extents(h, count, offset, flags=0):
    found = []

    def take(context, at, entries, error):
        assert context == nbd.CONTEXT_BASE_ALLOCATION and at == offset
        found.extend(zip(entries[0::2], entries[1::2]))

    h.block_status(count, offset, take, flags)
    return found


def chunks(h, count, offset, flags=0):
    """What a structured read consists of: offset, length and kind of every chunk."""
    found = []

    def take(data, at, kind, error):
        found.append((at, len(data), kind))

    data = h.pread_structured(count, offset, take, flags)
    return data, found


# The handshake.


def case_options_in_any_order_and_number():
    h = negotiating()
    names = []
    for _ in range(100):
        h.opt_list(lambda name, description: names.append(name))
    assert names == ["direct", "readonly", "vm1"] * 100, names[:4]
    h.opt_info()
    assert h.get_size() == 16 * MIB
    h.opt_go()
    h.pread(512, 0)
    h.shutdown()


def case_an_unknown_export_leaves_the_handshake_alive():
    h = negotiating("nothing")
    fails(errno.ENOENT, h.opt_info)
    fails(errno.ENOENT, h.opt_go)
    h.set_export_name("vm1")
    h.opt_go()
    assert h.get_size() == 16 * MIB


def case_contexts_are_listed_and_chosen():
    h = negotiating()
    listed = []
    assert h.opt_list_meta_context(listed.append) == 1
    assert listed == ["base:allocation"]
    h.add_meta_context("base:")
    listed.clear()
    h.opt_list_meta_context(listed.append)
    assert listed == ["base:allocation"]
    h.clear_meta_contexts()
    h.add_meta_context("qemu:dirty-bitmap:none")
    assert h.opt_list_meta_context(listed.append) == 0
    h.opt_go()
    assert not h.can_meta_context("qemu:dirty-bitmap:none")
    assert not h.can_meta_context(nbd.CONTEXT_BASE_ALLOCATION)


def case_abort_ends_the_handshake():
    h = negotiating()
    h.opt_abort()
    assert h.aio_is_closed()


def case_flags_tell_what_there_is():
    h = connect()
    for able in ("flush", "fua", "trim", "zero", "fast_zero", "multi_conn", "cache", "df"):
        assert getattr(h, f"can_{able}")(), able
    assert not h.is_read_only() and not h.is_rotational()
    h = connect("readonly")
    assert h.is_read_only()
    for able in ("trim", "zero", "fast_zero"):
        assert not getattr(h, f"can_{able}")(), able
    h = connect(structured=False, context=False)
    assert not h.can_df() and not h.get_structured_replies_negotiated()


def case_block_sizes_are_told_and_held_to():
    for export in ("vm1", "direct"):
        h = connect(export, strict=False)
        least = h.get_block_size(nbd.SIZE_MINIMUM)
        most = h.get_block_size(nbd.SIZE_MAXIMUM)
        assert least & (least - 1) == 0 and least <= 65536 and most == 32 * MIB
        h.pread(least, least)
        if least > 1:
            fails(errno.EINVAL, h.pread, least, 1)
            fails(errno.EINVAL, h.pread, least - 1, 0)
            fails(errno.EINVAL, h.block_status, least - 1, 0, lambda *a: 0)


# Reads.


def case_reads_beyond_the_end_are_refused():
    h = connect(strict=False)
    size = h.get_size()
    fails(errno.EINVAL, h.pread, 512, size)
    fails(errno.EINVAL, h.pread, 1024, size - 512)
    fails(errno.EINVAL, h.pread, 512, (1 << 63) - 512)
    h.pread(512, size - 512)


def case_a_read_of_a_hole_is_a_hole():
    h = connect()
    for count in (512, 4096, 65536, MIB):
        data, found = chunks(h, count, 4 * MIB)
        assert data == bytes(count)
        assert found == [(4 * MIB, count, nbd.READ_HOLE)], found
    data, found = chunks(h, 65536, MIB)
    assert found == [(MIB, 65536, nbd.READ_DATA)] and data != bytes(65536)


def case_df_means_one_chunk():
    h = connect()
    # Half a hole and half data.
    data, found = chunks(h, 2 * MIB, 0, nbd.CMD_FLAG_DF)
    assert found == [(0, 2 * MIB, nbd.READ_DATA)], found
    assert data[:MIB] == bytes(MIB) and data[MIB:] != bytes(MIB)
    assert data == h.pread(2 * MIB, 0)
    _, found = chunks(h, MIB, 4 * MIB, nbd.CMD_FLAG_DF)
    assert len(found) == 1


def case_df_without_structured_replies_is_refused():
    h = connect(structured=False, context=False, strict=False)
    fails(errno.EINVAL, h.pread_structured, 512, 0, lambda *a: 0, nbd.CMD_FLAG_DF)
    assert h.pread(512, 4 * MIB) == bytes(512)


def case_simple_and_structured_replies_say_the_same():
    one, other = connect(), connect(structured=False, context=False)
    for offset in (0, MIB - 512, 3 * MIB - 4096, 8 * MIB, 9 * MIB):
        assert one.pread(65536, offset) == other.pread(65536, offset)


def case_too_long_a_request_is_refused_and_not_the_connection():
    h = connect(strict=False)
    fails(errno.EINVAL, h.block_status, 0, 0, lambda *a: 0)
    fails(errno.EINVAL, h.pread, 0, 0)
    fails(errno.EINVAL, h.zero, 0, 0)
    h.pread(512, 0)


def case_many_requests_in_flight_come_back_each():
    h = connect()
    wanted = {i: h.pread(4096, i * 65536) for i in range(128)}
    buffers = {i: nbd.Buffer(4096) for i in wanted}
    cookies = {h.aio_pread(buffers[i], i * 65536): i for i in wanted}
    while cookies:
        h.poll(-1)
        for cookie in [c for c in cookies if h.aio_command_completed(c)]:
            i = cookies.pop(cookie)
            assert buffers[i].to_bytearray() == wanted[i]


# Writes, trims, zeroes.


def case_what_was_written_is_read_with_every_flag():
    h, other = connect(), connect()
    for i, flags in enumerate((0, nbd.CMD_FLAG_FUA)):
        data = bytes([i + 1]) * 8192
        h.pwrite(data, 10 * MIB, flags)
        assert other.pread(8192, 10 * MIB) == data
        h.zero(4096, 10 * MIB, flags)
        assert other.pread(8192, 10 * MIB) == bytes(4096) + data[4096:]
        h.trim(8192, 10 * MIB, flags)
    h.flush()


def case_a_read_only_export_refuses_by_eperm():
    h = connect("readonly", strict=False)
    fails(errno.EPERM, h.pwrite, bytes(512), 0)
    fails(errno.EINVAL, h.pwrite, bytes(512), 0, 1 << 9)
    assert h.pread(512, 0) == bytes(512)
    h.flush()


def case_writes_beyond_the_end_are_enospc():
    h = connect(strict=False)
    size = h.get_size()
    fails(errno.ENOSPC, h.pwrite, bytes(1024), size - 512)
    fails(errno.ENOSPC, h.zero, 1024, size - 512)
    fails(errno.EINVAL, h.trim, 1024, size - 512)
    fails(errno.EINVAL, h.cache, 1024, size - 512)
    # The payload of what was refused is not taken for a request.
    h.pread(512, 0)


def case_flags_that_a_command_does_not_have_are_refused():
    h = connect(strict=False)
    for call, args, flag in (
        (h.pread, (512, 0), nbd.CMD_FLAG_NO_HOLE),
        (h.pread, (512, 0), nbd.CMD_FLAG_REQ_ONE),
        (h.pwrite, (bytes(512), 5 * MIB), nbd.CMD_FLAG_DF),
        (h.trim, (512, 5 * MIB), nbd.CMD_FLAG_NO_HOLE),
        (h.trim, (512, 5 * MIB), nbd.CMD_FLAG_FAST_ZERO),
        (h.zero, (512, 5 * MIB), nbd.CMD_FLAG_REQ_ONE),
        (h.cache, (512, 0), nbd.CMD_FLAG_DF),
        (h.zero, (512, 5 * MIB), 1 << 12),
    ):
        fails(errno.EINVAL, call, *args, flag)
    h.pread(512, 0)


def case_fast_zeroes_are_fast_or_refused():
    h = connect()
    h.pwrite(b"x" * 65536, 11 * MIB)
    try:
        h.zero(65536, 11 * MIB, nbd.CMD_FLAG_FAST_ZERO)
    except nbd.Error as error:
        assert error.errnum == errno.ENOTSUP, error.string
        assert h.pread(65536, 11 * MIB) == b"x" * 65536
    else:
        assert h.pread(65536, 11 * MIB) == bytes(65536)
        assert extents(h, 65536, 11 * MIB) == [(65536, HOLE_ZERO)]


def case_zeroes_without_a_hole_read_as_zeroes():
    h = connect()
    h.pwrite(b"x" * 65536, 11 * MIB)
    h.zero(65536, 11 * MIB, nbd.CMD_FLAG_NO_HOLE)
    assert h.pread(65536, 11 * MIB) == bytes(65536)
    h.trim(65536, 11 * MIB)


def case_cache_is_advice():
    h = connect()
    h.cache(16 * MIB, 0)
    h.cache(512, 0)
    # Nothing can be fetched into a cache that is gone around.
    direct = connect("direct", strict=False)
    if direct.get_block_size(nbd.SIZE_MINIMUM) > 1:
        assert not direct.can_cache()
        fails(errno.EINVAL, direct.cache, 4096, 0)


# Block status.


def case_block_status_covers_the_range():
    for export in ("vm1", "direct"):
        h = connect(export)
        found = extents(h, 16 * MIB, 0)
        assert sum(length for length, _ in found) <= 16 * MIB
        assert found[:5] == [
            (MIB, HOLE_ZERO), (2 * MIB, 0), (5 * MIB, HOLE_ZERO), (MIB, 0), (7 * MIB, HOLE_ZERO)
        ][: len(found[:5])], found
        assert extents(h, 2 * MIB, 2 * MIB) == [(MIB, 0), (MIB, HOLE_ZERO)]


def case_block_status_with_req_one_is_one():
    h = connect()
    assert extents(h, 16 * MIB, 0, nbd.CMD_FLAG_REQ_ONE) == [(MIB, HOLE_ZERO)]
    assert extents(h, 512, 2 * MIB, nbd.CMD_FLAG_REQ_ONE) == [(512, 0)]
    assert extents(h, 4096, 16 * MIB - 4096, nbd.CMD_FLAG_REQ_ONE) == [(4096, HOLE_ZERO)]


def case_block_status_without_a_context_is_refused():
    h = connect(context=False, strict=False)
    fails(errno.EINVAL, h.block_status, 512, 0, lambda *a: 0)
    h.pread(512, 0)


def case_block_status_beyond_the_end_is_refused():
    h = connect(strict=False)
    fails(errno.EINVAL, h.block_status, 1024, h.get_size() - 512, lambda *a: 0)
    fails(errno.EINVAL, h.block_status, 512, h.get_size(), lambda *a: 0)


def case_what_was_written_shows_at_once_on_every_connection():
    one, other = connect(), connect()
    one.pwrite(b"y" * 4096, 14 * MIB)
    assert extents(other, 4096, 14 * MIB) == [(4096, 0)]
    one.trim(4096, 14 * MIB)
    assert extents(other, 4096, 14 * MIB) == [(4096, HOLE_ZERO)]


def case_errors_have_words():
    h = connect(strict=False)
    text = fails(errno.EINVAL, h.pread, 512, h.get_size())
    assert text, text


failed = []
cases = [(name, case) for name, case in list(globals().items()) if name.startswith("case_")]
for name, case in cases:
    try:
        case()
        print("ok", name)
    except Exception:  # A case that fails does not keep the others from being tried.
        failed.append(name)
        print("FAILED", name)
        traceback.print_exc(file=sys.stdout)
print("all passed" if not failed else f"failed: {failed}", len(cases), "cases")
sys.exit(bool(failed))
