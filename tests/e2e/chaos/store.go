package chaos

import (
	"errors"
	"net"
	"net/rpc"
	"sync"
)

// Store is the smallest store that can use a fencing token: registers that keep the greatest token
// they have seen and refuse an older one. Registers that are not fenced take every write. It serves
// all processes of a run over loopback.
type Store struct {
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex // guards what follows
	regs  map[string]*register
	conns map[net.Conn]struct{}
}

type register struct {
	value string
	token int64
	seq   int
}

// Access is a read or a write of a register.
type Access struct {
	Register string
	Fenced   bool
	Token    int64
	Write    bool
	Value    string
}

// Answer is what became of an Access.
type Answer struct {
	Refused bool
	Value   string // of a read
	Seq     int    // of a write: its place in the order in which the register's were made
}

func openStore() (*Store, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Store{listener: l, regs: map[string]*register{}, conns: map[net.Conn]struct{}{}}
	server := rpc.NewServer()
	if err := server.RegisterName("Store", &service{s}); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s.running.Go(func() { s.accept(server) }) // ends with the listener
	return s, nil
}

func (s *Store) accept(server *rpc.Server) {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return // closed: a loopback listener ends for no other reason
		}
		s.mu.Lock()
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		s.running.Go(func() { // ends with the connection, which its client or close ends
			server.ServeConn(c)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, c)
		})
	}
}

func (s *Store) close() error {
	err := s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		if e := c.Close(); e != nil && !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	s.mu.Unlock()
	s.running.Wait()
	return err
}

// Do makes one access.
func (s *Store) Do(a Access) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.regs[a.Register]
	if r == nil {
		r = &register{}
		s.regs[a.Register] = r
	}
	if a.Fenced {
		if a.Token < r.token {
			return Answer{Refused: true}
		}
		r.token = a.Token
	}
	if !a.Write {
		return Answer{Value: r.value}
	}
	r.value = a.Value
	r.seq++
	return Answer{Seq: r.seq}
}

// forget drops all registers: the next round has others.
func (s *Store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.regs)
}

// service is what of a Store goes over the wire.
type service struct{ s *Store }

// Do has the form that net/rpc asks for.
func (v *service) Do(a Access, answer *Answer) error {
	*answer = v.s.Do(a)
	return nil
}
