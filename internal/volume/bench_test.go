package volume

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// diskLike returns blocks of what lies on a disk: sources and programs of the
// Go toolchain, each file at a page, as a file system lays them out.
func diskLike(b *testing.B, blocks int) [][]byte {
	b.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skipf("no Go toolchain to take files from: %v", err)
	}
	var disk []byte
	for _, dir := range []string{"src/net", "bin", "src/runtime"} {
		limit := len(disk) + blocks*BlockSize/3
		err := filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), dir), func(name string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || len(disk) >= limit {
				return err
			}
			body, err := os.ReadFile(name)
			body = body[:min(len(body), limit-len(disk))]
			disk = append(disk, body...)
			disk = append(disk, make([]byte, -len(body)&(PageSize-1))...)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	var out [][]byte
	for ; len(disk) >= BlockSize; disk = disk[BlockSize:] {
		out = append(out, disk[:BlockSize])
	}
	return out
}

// BenchmarkLevels is what the choice of the compression level rests on (see
// docs/decisions/0002-volume-format.md).
func BenchmarkLevels(b *testing.B) {
	blocks := diskLike(b, 24)
	for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedDefault, zstd.SpeedBetterCompression} {
		b.Run(level.String(), func(b *testing.B) {
			enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithWindowSize(BlockSize))
			if err != nil {
				b.Fatal(err)
			}
			dst := make([]byte, 0, maxBlockObject+decoderSlack)
			total := 0
			for _, raw := range blocks {
				total += len(enc.EncodeAll(raw, dst))
			}
			b.SetBytes(BlockSize)
			for i := 0; b.Loop(); i++ {
				enc.EncodeAll(blocks[i%len(blocks)], dst)
			}
			b.ReportMetric(100*float64(total)/float64(len(blocks)*BlockSize), "%size")
		})
	}
}

// BenchmarkBlock is a block's way into an object and back, beside the hash
// that both directions need.
func BenchmarkBlock(b *testing.B) {
	blocks, c, d := diskLike(b, 24), testCodec(b), testDomains(b)
	dst, object := make([]byte, BlockSize), make([]byte, 0, maxBlockObject+decoderSlack)
	var objects [][]byte
	for _, raw := range blocks {
		o, err := c.encode(nil, raw)
		if err != nil {
			b.Fatal(err)
		}
		objects = append(objects, o)
	}
	for _, bench := range []struct {
		name string
		run  func(i int) error
	}{
		{"encode", func(i int) error { _, err := c.encode(object, blocks[i]); return err }},
		{"decode", func(i int) error { return c.decode(dst, objects[i]) }},
		{"hash", func(i int) error { d.Sum(SlotTenant, blocks[i]); return nil }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(BlockSize)
			for i := 0; b.Loop(); i++ {
				if err := bench.run(i % len(blocks)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
