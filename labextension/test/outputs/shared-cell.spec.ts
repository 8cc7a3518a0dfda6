import { doubledRuns } from '../../src/outputs/marks';
import { followShared, SharedCellWriter } from '../../src/outputs/shared-cell';
import {
  begun,
  ended,
  heading,
  line,
  ours,
  receipt,
  Room,
  whole
} from './shared-notebook';

describe('a cell of several pages', () => {
  const setUp = () => {
    const room = new Room(2);
    const [one, other] = room.pages;
    const writers = room.pages.map(
      page => new SharedCellWriter(page, 'run', 0)
    );
    writers[0].begin();
    writers[0].apply(begun);
    writers[0].write();
    room.meet();
    return { room, one, other, writers };
  };

  it('is not written where it holds already what is told', () => {
    const { room, one, writers } = setUp();
    const before = room.stateOf(1);
    writers[1].begin();
    writers[1].apply(begun);
    writers[1].write();
    expect(room.stateOf(1)).toEqual(before);
    writers[1].apply(ended);
    writers[1].write(true);
    room.meet();
    followShared(one);
    for (const page of room.pages) {
      expect(page.outputs.toJSON()).toMatchObject(whole);
      expect(page.sharedModel.getOutputs()).toMatchObject(whole);
    }
  });

  it.each([0, 1])(
    'that all wrote while they were apart is mended by one (%s)',
    mender => {
      const { room, writers } = setUp();
      writers[1].begin();
      writers[1].apply(begun);
      for (const writer of writers) {
        writer.apply(ended);
        writer.write(true);
      }
      room.meet();
      room.pages.forEach(followShared);
      expect(doubledRuns(room.pages[0])).toEqual(['run']);
      writers[mender].write(true);
      room.meet();
      writers[1 - mender].write(true); // finds nothing to do
      room.meet();
      room.pages.forEach(followShared);
      for (const page of room.pages) {
        expect(doubledRuns(page)).toEqual([]);
        expect(page.outputs.toJSON()).toMatchObject(whole);
        expect(page.sharedModel.getOutputs()).toMatchObject(whole);
      }
    }
  );

  it('comes to one state though all mend it at once, and then one more', () => {
    const { room, writers } = setUp();
    writers[1].begin();
    writers[1].apply(begun);
    writers.forEach(writer => writer.apply(ended));
    for (let round = 0; round < 3; round++) {
      writers.forEach(writer => writer.write(true));
      room.meet();
    }
    writers[0].write(true);
    room.meet();
    for (const page of room.pages) {
      followShared(page);
      expect(page.outputs.toJSON()).toMatchObject(whole);
    }
  });

  it('is left alone when somebody has cleared it, or runs it', () => {
    const { room, other, writers } = setUp();
    other.outputs.clear();
    room.meet();
    expect(writers[0].isDisturbed).toBe(true);
    other.outputs.add(ours({ run: 'next', live: true }, 'running'));
    room.meet();
    expect(writers[0].isDisturbed).toBe(true);
  });

  it('is not given up when the run itself has cleared it', () => {
    const { room, other, writers } = setUp();
    writers[0].apply([{ op: 'clear' }]);
    writers[0].write();
    room.meet();
    other.sharedModel.setOutputs([]);
    room.meet();
    expect(writers[0].isDisturbed).toBe(false);
    writers[0].apply([{ op: 'add', output: receipt }]);
    expect(writers[0].isDisturbed).toBe(false);
    writers[0].write();
    room.meet();
    expect(other.outputs.toJSON()).toMatchObject([receipt]);
  });

  it('shows what others put into the middle where the document has it', () => {
    const { room, one, other } = setUp();
    one.sharedModel.updateOutputs(1, 1, [heading]);
    room.meet();
    expect(other.outputs.get(2).toJSON()).toMatchObject(heading);
    const before = room.stateOf(1);
    for (const page of room.pages) {
      followShared(page);
      expect(page.outputs.toJSON()).toMatchObject([
        line,
        heading,
        { text: 'first\n' }
      ]);
    }
    expect(room.stateOf(1)).toEqual(before);
  });
});
