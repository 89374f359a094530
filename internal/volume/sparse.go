package volume

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// blockRun is the blocks from start up to, not including, end.
type blockRun struct{ start, end int64 }

// dataRuns returns the blocks of a source that may hold data: all of them,
// unless the source is a file whose file system knows its holes.
func dataRuns(src io.ReaderAt, size int64) ([]blockRun, error) {
	whole := []blockRun{{0, (size + BlockSize - 1) / BlockSize}}
	f, ok := src.(*os.File)
	if !ok {
		return whole, nil
	}
	var runs []blockRun
	for off := int64(0); off < size; {
		data, err := f.Seek(off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && data >= size { // no data up to the end
			break
		}
		if errors.Is(err, unix.EINVAL) && off == 0 { // a device, or a file system without holes
			return whole, nil
		}
		if err != nil {
			return nil, errs.Wrap(errs.Unavailable, err, "find the data of %s", f.Name())
		}
		hole, err := f.Seek(data, unix.SEEK_HOLE)
		if err != nil {
			return nil, errs.Wrap(errs.Unavailable, err, "find the holes of %s", f.Name())
		}
		hole = min(hole, size)
		runs = appendRun(runs, blockRun{data / BlockSize, (hole + BlockSize - 1) / BlockSize})
		off = hole
	}
	return runs, nil
}

// appendRun joins a run with the one before where they share a block.
func appendRun(runs []blockRun, r blockRun) []blockRun {
	if n := len(runs); n > 0 && r.start <= runs[n-1].end {
		runs[n-1].end = max(runs[n-1].end, r.end)
		return runs
	}
	return append(runs, r)
}
