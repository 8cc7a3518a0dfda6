import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { arrange, IArrangement } from '../model/sorting';
import { cardTarget, Deeds } from '../model/actions';
import { formatPercent, formatShare } from '../format';
import { ICard } from '../model/gpu-cards';
import { CARD_ICONS } from '../icons';
import { GpuModel } from '../model/model';
import { cardActions } from '../model/permissions';
import { cardHint, cardWord } from '../labels';
import { Facts, IconActions, Outcome } from './details';
import {
  factsOf,
  hasMeters,
  holder,
  ICardItem,
  IGroupItem,
  itemsOf,
  spoken,
  summary
} from './gpu-items';
import { useToggled } from './open-rows';
import { Age, Bar, Countdown, Icon, Sparkline } from './widgets';
import { Tree } from './tree';

interface IGpusProps {
  model: GpuModel;
  deeds: Deeds;
  trans: TranslationBundle;
  arrangement: IArrangement;
  filter: string;
}

/** All cards, by node (or as the user arranges them). */
export function Gpus(props: IGpusProps): React.ReactElement {
  const { model, trans, arrangement, filter } = props;
  const { snapshot, feedback } = model;
  const [closed, toggleGroup] = useToggled();
  const [opened, toggleCard] = useToggled();
  const items = React.useMemo(() => {
    const named = (word: ICard['state'] | 'nobody' | 'this-machine') =>
      word === 'nobody'
        ? trans.__('Nobody')
        : word === 'this-machine'
          ? trans.__('This machine')
          : cardWord(trans, word);
    const groups = arrange(snapshot.hosts, arrangement, filter, named);
    return itemsOf(groups, snapshot, feedback, closed, opened, trans);
  }, [snapshot, feedback, arrangement, filter, closed, opened, trans]);
  if (items.length === 0) {
    const isFiltered = filter !== '' || arrangement.onlyMine;
    return (
      <p className="jp-GpuRelease-empty">
        {isFiltered
          ? trans.__('No GPU matches the filter.')
          : trans.__('No GPUs.')}
      </p>
    );
  }
  return (
    <Tree
      label={trans.__('GPUs')}
      items={items}
      spoken={item => spoken(item, trans)}
      onToggle={item =>
        item.kind === 'group' ? toggleGroup(item.key) : toggleCard(item.key)
      }
      draw={(item, isActive) =>
        item.kind === 'group' ? (
          <GroupRow
            item={item}
            trans={trans}
            onToggle={() => toggleGroup(item.key)}
          />
        ) : (
          <CardRow
            {...props}
            item={item}
            isActive={isActive}
            showsHost={arrangement.grouping !== 'node'}
            onToggle={() => toggleCard(item.key)}
          />
        )
      }
    />
  );
}

function GroupRow(props: {
  item: IGroupItem;
  trans: TranslationBundle;
  onToggle: () => void;
}): React.ReactElement {
  const { group, expanded } = props.item;
  const caret = expanded ? caretDownIcon : caretRightIcon;
  return (
    <div className="jp-GpuRelease-group" onClick={props.onToggle}>
      <Icon icon={caret} />
      <span className="jp-GpuRelease-title" title={group.title}>
        {group.title}
      </span>
      {group.note && (
        <span className="jp-GpuRelease-note" title={group.note}>
          {group.note}
        </span>
      )}
      {group.cardName && (
        <span className="jp-GpuRelease-cardName">{group.cardName}</span>
      )}
      <span className="jp-GpuRelease-count">{summary(props.trans, group)}</span>
    </div>
  );
}

interface ICardRowProps extends IGpusProps {
  item: ICardItem;
  isActive: boolean;
  showsHost: boolean;
  onToggle: () => void;
}

function CardRow(props: ICardRowProps): React.ReactElement {
  const { item, trans, deeds, isActive, model } = props;
  const { card, feedback } = item;
  const actions = cardActions(card, model.snapshot);
  const word = cardWord(trans, card.state);
  const who = holder(card);
  const target = cardTarget(card);
  const isBusy = feedback?.kind === 'busy';
  const offer = { trans, deeds, target, isBusy, isActive };
  const place = props.showsHost && card.host ? `${card.host}:` : '';
  return (
    <div
      className={`jp-GpuRelease-card jp-mod-${card.state}${card.mine ? ' jp-mod-mine' : ''}`}
    >
      <div className="jp-GpuRelease-head" onClick={props.onToggle}>
        <Icon
          icon={CARD_ICONS[card.state]}
          label={cardHint(trans, card.state)}
          kind={card.state}
        />
        <span className="jp-GpuRelease-index" title={cardTitle(card, trans)}>
          {place}
          {card.index}
        </span>
        <span className="jp-GpuRelease-who" title={who || word}>
          {who || word}
        </span>
        <When card={card} at={model.snapshot.at} trans={trans} />
        <IconActions {...offer} actions={actions} />
      </div>
      {hasMeters(card) && <Meters card={card} model={model} trans={trans} />}
      <Outcome feedback={feedback} />
      {item.expanded && (
        <Facts {...offer} actions={actions} facts={factsOf(card, trans)} />
      )}
    </div>
  );
}

function cardTitle(card: ICard, trans: TranslationBundle): string {
  return [trans.__('GPU %1', card.index), card.name]
    .filter(Boolean)
    .join(' · ');
}

/** Since when it is held, or until when it is kept warm. */
function When(props: {
  card: ICard;
  at: number;
  trans: TranslationBundle;
}): React.ReactElement | null {
  const { card, at, trans } = props;
  if (card.state === 'warm') {
    return (
      <span className="jp-GpuRelease-when" title={cardHint(trans, card.state)}>
        {trans.__('warm')}{' '}
        {card.warmUntil !== null && <Countdown until={card.warmUntil} />}
      </span>
    );
  }
  if (card.state === 'free' || card.heldS === null) {
    return null;
  }
  return (
    <span className="jp-GpuRelease-when">
      {card.state === 'idle-kernel' && `${trans.__('idle')} `}
      <Age seconds={card.heldS} at={at} />
    </span>
  );
}

function Meters(props: {
  card: ICard;
  model: GpuModel;
  trans: TranslationBundle;
}): React.ReactElement {
  const { card, model, trans } = props;
  const { history } = model;
  return (
    <div className="jp-GpuRelease-meters">
      {card.memoryBytes > 0 && (
        <>
          <Bar share={card.usedBytes / card.memoryBytes} />
          <span className="jp-GpuRelease-memory">
            {formatShare(card.usedBytes, card.memoryBytes)}
          </span>
        </>
      )}
      <Sparkline
        samples={history.of(card.key)}
        spanS={history.spanS}
        title={trans.__('Utilisation over the last 5 minutes')}
      />
      <span className="jp-GpuRelease-utilization">
        {card.utilization === null ? '–' : formatPercent(card.utilization)}
      </span>
    </div>
  );
}
