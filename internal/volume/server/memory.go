package server

import (
	"context"
	"os"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/volume"
	"github.com/billethq/billet/internal/volume/protocol"
)

// saveMemory stores the files that a driver made of a guest's memory.
func (s *server) saveMemory(ctx context.Context, req protocol.SaveMemoryRequest) (protocol.SaveMemoryResponse, error) {
	disk, err := s.dev.DiskRoot(req.Disk)
	if err != nil {
		return protocol.SaveMemoryResponse{}, err
	}
	entries, err := os.ReadDir(req.Dir)
	if err != nil {
		return protocol.SaveMemoryResponse{}, errs.Wrap(errs.Invalid, err, "look for the memory's files")
	}
	meta := volume.MemoryMeta{Disk: disk, Machine: req.Machine, Created: req.Created}
	for _, e := range entries { // in the order of their names
		meta.Files = append(meta.Files, volume.MemoryFile{Name: e.Name()})
	}
	defer giveBack()
	m, stats, err := volume.PutMemory(ctx, s.store, s.cache, req.Dir, meta)
	if err != nil {
		return protocol.SaveMemoryResponse{}, err
	}
	return protocol.SaveMemoryResponse{Root: m.Root(), StoredBytes: stats.StoredBytes, Bytes: stats.UsedBytes}, nil
}

// loadMemory writes a memory image's files, unless they could not be restored.
func (s *server) loadMemory(ctx context.Context, req protocol.LoadMemoryRequest) (protocol.LoadMemoryResponse, error) {
	disk, err := s.dev.DiskRoot(s.dev.Root())
	if err != nil {
		return protocol.LoadMemoryResponse{}, err
	}
	m, err := s.store.LoadMemory(ctx, req.Root)
	if err != nil {
		return protocol.LoadMemoryResponse{}, err
	}
	meta := m.Meta()
	if meta.Disk != disk {
		return protocol.LoadMemoryResponse{}, errs.New(errs.Unsupported, "the memory is of disk %s, the volume is %s", meta.Disk, disk)
	}
	if why := req.Machine.Refuses(meta.Machine); why != "" {
		return protocol.LoadMemoryResponse{}, errs.New(errs.Unsupported, "%s", why)
	}
	defer giveBack()
	if err := s.fetcher.WriteMemory(ctx, m, req.Dir); err != nil {
		return protocol.LoadMemoryResponse{}, err
	}
	return protocol.LoadMemoryResponse{Bytes: m.Chain().Size(), Taken: meta.Created}, nil
}
