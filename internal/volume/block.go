package volume

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"runtime"

	"github.com/klauspost/compress/zstd"

	"github.com/billethq/billet/internal/errs"
)

// A block object is a header of 16 bytes and a payload. Numbers are
// little-endian.
//
//	0  magic "SB1\0"   the 1 is the version
//	4  codec u8        0 raw, 1 zstd
//	5  flags u8        0
//	6  reserved u16    0
//	8  rawlen u32      BlockSize
//	12 crc32c u32      of bytes 0 to 11 and the payload
//
// The checksum lets a scrubber without domain keys find damage; what a reader
// relies on is the digest of the raw block, which is the object's name.
const (
	blockMagic      = "SB1\x00"
	blockHeaderSize = 16

	codecRaw  = 0
	codecZstd = 1

	// A block that zstd shrinks by less than 8 % is stored raw: reading it
	// back costs more than the bytes are worth.
	minGainPercent = 8

	// maxBlockObject bounds a block object: raw is the largest.
	maxBlockObject = blockHeaderSize + BlockSize
	// decoderSlack is what the decoder may need beyond the block itself.
	decoderSlack = 64 << 10
)

// codec compresses and decompresses blocks. Its encoders and decoders are
// pooled inside, as many as there are cores to run them; a call beyond that
// waits, which bounds memory.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
	crc *crc32.Table
}

// maxCodecs bounds encoders and decoders: each holds about 2 MiB once used.
const maxCodecs = 4

func newCodec() (*codec, error) {
	n := min(runtime.GOMAXPROCS(0), maxCodecs)
	// The checksum of a zstd frame is left out: the header has its own, and
	// the digest is checked anyway. A window beyond the block has no use.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(n),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(BlockSize), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "make a zstd encoder")
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(n), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(BlockSize+decoderSlack), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "make a zstd decoder")
	}
	return &codec{enc: enc, dec: dec, crc: crc32.MakeTable(crc32.Castagnoli)}, nil
}

// encode appends the object of a raw block to dst, which should have room for
// maxBlockObject bytes.
func (c *codec) encode(dst, raw []byte) ([]byte, error) {
	if len(raw) != BlockSize {
		return nil, errs.New(errs.Invalid, "block of %d bytes, want %d", len(raw), BlockSize)
	}
	start := len(dst)
	dst = append(dst, blockMagic...)
	dst = append(dst, codecZstd, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, BlockSize)
	dst = append(dst, 0, 0, 0, 0)
	dst = c.enc.EncodeAll(raw, dst)
	object := dst[start:]
	if (len(object)-blockHeaderSize)*100 > BlockSize*(100-minGainPercent) {
		object[4] = codecRaw
		dst = append(dst[:start+blockHeaderSize], raw...)
		object = dst[start:]
	}
	binary.LittleEndian.PutUint32(object[12:], c.checksum(object))
	return dst, nil
}

// decode writes the raw block of an object to dst, which has BlockSize bytes.
// It refuses every object that encode could not have written, but does not
// compare the digest.
func (c *codec) decode(dst, object []byte) error {
	if len(object) < blockHeaderSize {
		return fmt.Errorf("block object of %d bytes is shorter than its header", len(object))
	}
	if len(object) > maxBlockObject {
		return fmt.Errorf("block object of %d bytes, at most %d are possible", len(object), maxBlockObject)
	}
	if string(object[:4]) != blockMagic {
		return fmt.Errorf("block object begins with %q, want %q", object[:4], blockMagic)
	}
	if object[5] != 0 || object[6] != 0 || object[7] != 0 {
		return fmt.Errorf("block object has unknown flags %x", object[5:8])
	}
	if n := binary.LittleEndian.Uint32(object[8:]); n != BlockSize {
		return fmt.Errorf("block object of raw length %d, want %d", n, BlockSize)
	}
	if got, want := c.checksum(object), binary.LittleEndian.Uint32(object[12:]); got != want {
		return fmt.Errorf("block object has checksum %08x, its content has %08x", want, got)
	}
	return c.decodePayload(dst, object[4], object[blockHeaderSize:])
}

func (c *codec) decodePayload(dst []byte, codec byte, payload []byte) error {
	switch codec {
	case codecRaw:
		if len(payload) != BlockSize {
			return fmt.Errorf("raw block of %d bytes, want %d", len(payload), BlockSize)
		}
		copy(dst, payload)
		return nil
	case codecZstd:
		out, err := c.dec.DecodeAll(payload, dst[:0:BlockSize])
		if err != nil {
			return fmt.Errorf("decompress block: %w", err)
		}
		if len(out) != BlockSize {
			return fmt.Errorf("block decompressed to %d bytes, want %d", len(out), BlockSize)
		}
		return nil
	}
	return fmt.Errorf("block object has unknown codec %d", codec)
}

func (c *codec) checksum(object []byte) uint32 {
	return crc32.Update(crc32.Checksum(object[:12], c.crc), c.crc, object[blockHeaderSize:])
}
